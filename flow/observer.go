package flow

import (
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// An Observer watches runs. Its functions are optional, are called from the
// goroutines of the run, in parallel for parallel calls, and must not block.
type Observer struct {
	// Decided is called when the guards of a phase have judged. In the phases that
	// are not about a call the info names none. Of a stream it is told of the
	// whole, and of a part only if that was refused.
	Decided func(CallInfo, *Decision)
	// Finished is called when a call has ended, before its result is shown.
	Finished func(CallInfo, CallResult)
	// Asked is called when a person is asked about a call.
	Asked func(session.Question)
}

// CallInfo names a call.
type CallInfo struct {
	Session    session.Key
	Run        string
	Agent      string
	Step       int // from 1
	ID         string
	Tool       string
	Module     string // digest; empty for Go code
	ArgsSHA256 string // of the arguments as judged last; empty if they were not valid
}

// A CallResult is how a call ended.
type CallResult struct {
	Code     abi.Code
	Err      error // the operator's view; nil if Code is ok
	Response map[string]any
	Receipt  any // of the handler; see [Outcome]
	Ran      bool
	Took     time.Duration
}
