package host

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Reply is what a call that succeeded returned.
type Reply struct {
	Output  []byte // the caller's; at least one byte, at most Limits.OutputBytes; not yet parsed
	Receipt Receipt
}

// A Receipt says what one call used. Every call has one, however it ended.
type Receipt struct {
	Module    string   `json:"module"` // digest of the module
	Code      abi.Code `json:"code"`   // outcome
	WallUS    int64    `json:"wall_us"`
	Fuel      int64    `json:"fuel"`       // work of the export, as package host/meter counts it; after a trap what was counted by then
	PeakBytes int64    `json:"peak_bytes"` // most linear memory and blocks held at once
	HostCalls int      `json:"host_calls"`
	Used      []string `json:"used,omitempty"`   // capabilities used, each once, in order of first use
	Denied    []string `json:"denied,omitempty"` // capabilities that were needed and missing, likewise
	// DeniedMore counts the refusals that Denied has no room for.
	DeniedMore int `json:"denied_more,omitempty"`
	LogBytes   int `json:"log_bytes,omitempty"`
	// In is the function in which a guest was stopped, or failed by a trap: its index in the module as its
	// author made it, and the name that the module's name section gives it, or under which it is exported, such as "func[1207] main.spin".
	// The name is the guest's choice: it is escaped and cut, and for the operator, not for a model. Empty if
	// the call ended otherwise, or no function of the guest's ran.
	In string `json:"in,omitempty"`
}

// Bounds of the lists in a receipt. A guest chooses what it asks for, so it
// must not be able to fill a receipt.
const (
	maxListed      = 64  // entries of Used and of Denied
	maxListedBytes = 256 // one entry
	maxNameBytes   = 120 // the name of a function
)

// A GuestError reports a call that did not yield a usable output. Two codes say that the host failed and
// not the guest, which its log has at level error: storage_unavailable if the call was not made, since the host
// could not bring code back that it had (see [Config.CodeBytes]) or had no memory for an instance; outcome_unknown if
// the call had begun, and a function of the host's, or the engine, panicked in it.
type GuestError struct {
	Code    abi.Code
	Message string // safe for a model and a client: the guest's own text for guest_error, else the code's sentence
	Detail  string // for the operator alone: kind of trap, exit code, functions on the stack, end of standard error
	Receipt Receipt
}

func (e *GuestError) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// A HostCall is one host call of a guest, as [Call.Trace] sees it.
type HostCall struct {
	At     time.Duration // since the instance was given
	Took   time.Duration
	Name   string // as in abi.HostFunctions; for Extism's import the nearest of these
	Detail string // what it was about, such as "GET https://api.example.com/v1": never a body or a secret
	Code   abi.Code
	Need   string // the capability that was used or missing; empty if the call needs none
	// Status and Bytes describe an HTTP answer; Recorded is set if a cassette gave it.
	Status   int
	Bytes    int64
	Recorded bool
	Scrubbed []string // names of the secrets that were taken out of the answer
	// Sent and Got are what the guest gave with the call and what it got for it, if
	// [Call.TraceBodies] asks for them: of http the bodies, else the request and what
	// came with it, and the reply. Secrets read as their names. They are the tracer's.
	Sent, Got []byte
}

// listed appends s to list unless it is there, within the bounds of a receipt.
func listed(list []string, s string) []string {
	s = printable(s, maxListedBytes)
	if len(list) >= maxListed || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// printable returns s fit for a log line or an error: at most n bytes, in UTF-8,
// with every character that is hidden or breaks a line escaped. More than three of
// the same such character are written once, with their number.
func printable(s string, n int) string {
	const mark = "…truncated"
	var b strings.Builder
	skip := 0 // what lies before is written already
	for i, r := range s {
		if b.Len() > n {
			break
		}
		if i < skip {
			continue
		}
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case abi.Hidden(r) || r == '\u2028' || r == '\u2029':
			fmt.Fprintf(&b, `\u{%x}`, r)
			if n := run(s[i:], r); n > 3 {
				fmt.Fprintf(&b, "×%d", n)
				skip = i + n*utf8.RuneLen(r)
			}
		default:
			b.WriteRune(r)
		}
	}
	if b.Len() <= n {
		return b.String()
	}
	if n < len(mark) {
		return ""
	}
	end := n - len(mark)
	for end > 0 && !utf8.RuneStart(b.String()[end]) {
		end--
	}
	return b.String()[:end] + mark
}

// run returns how many r the text begins with.
func run(s string, r rune) int {
	n := 0
	for _, c := range s {
		if c != r {
			break
		}
		n++
	}
	return n
}
