package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Fail returns an error for the model. The code, [a-z_]{1,40}, is the author's;
// the tests of a plugin and the model tell failures apart by it. A code of
// another form is left out. The text is formatted as by [fmt.Sprintf].
func Fail(code, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

type failure struct{ code, message string }

func (f *failure) Error() string { return f.code + ": " + f.message }

// ErrDenied matches the error of a host call that was refused: the call's grants
// do not cover it, the address may not be reached, or a test has no answer for it.
var ErrDenied = errors.New("host call refused")

// A HostError reports a host call that had no effect. It matches [ErrDenied] if
// the host refused the call and [fs.ErrNotExist] if what it names does not exist.
type HostError struct {
	Function string   // one of abi.HostFunctions
	Code     abi.Code // why, in the host's words
	Message  string   // what would have been needed
}

// Error says which function failed, and why.
func (e *HostError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Function, e.Code, e.Message)
}

// Is implements the matches that HostError documents.
func (e *HostError) Is(target error) bool {
	switch e.Code {
	case abi.CapabilityDenied, abi.EgressDenied, abi.NoRecordedAnswer:
		return target == ErrDenied
	case abi.NotFound:
		return target == fs.ErrNotExist
	}
	return false
}

// hostError reads the error reply of function.
func hostError(function string, reply []byte) error {
	var e abi.ErrorReply
	if err := json.Unmarshal(reply, &e); err != nil {
		return fmt.Errorf("%s: reply: %w", function, err)
	}
	return &HostError{Function: function, Code: e.Code, Message: e.Message}
}
