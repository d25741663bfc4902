package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Call is one call of one export. Its zero value, with an export, is a call
// without input that may do nothing.
type Call struct {
	Kind   abi.Kind // zero: a tool, which without grants may do as little as a guard
	Export string
	Input  []byte // not changed

	Grants capability.Set    // zero grants nothing
	Limits Limits            // zero: the defaults of the kind
	Config map[string]string // what Extism's config_get reads
	Access Access            // zero reaches nothing

	// Now is the guest's wall time at the start of the call; zero takes the real
	// one. With the grant clock, time goes on from there in a tool or hook; else
	// it stands still. A guard should be given the time of its question.
	Now time.Time
	// Seed makes the guest's randomness repeat. Without it a tool or hook gets
	// randomness fit for secrets, and a guard always the same.
	Seed []byte
	// Trace is told of every host call that reaches, or would reach, outside the
	// guest, when it is over. It must not block.
	Trace func(HostCall)
	// TraceBodies tells Trace what host calls carry, too. It costs a copy of it.
	TraceBodies bool
}

func kindOf(c *Call) abi.Kind {
	if c.Kind == "" {
		return abi.KindTool
	}
	return c.Kind
}

// A use is what one call may do through host functions and what it has done: all that
// these need to know of it. Nothing in it knows how the guest runs, so that a test that
// an author runs without a sandbox has the same host functions; the files of this
// package that a copy of the SDK has are those that build without the engine.
type use struct {
	call     *Call
	limits   Limits
	guard    bool            // the kind is a guard or its settings
	operator operator        // for whom the host's own failures are
	parent   context.Context // ends when the caller gives up
	ctx      context.Context // of what runs: parent with the end of its clock; nil until then
	started  time.Time       // when the clock that runs began
	bound    time.Duration   // of the clock that runs
	now      time.Time       // wall time at the start
	live     bool            // the export runs, so grants are effective
	lent     bool            // somebody may have kept ctx

	hostCalls  int
	used       []string
	denied     []string
	deniedMore int
	stored     int64 // bytes kept for the guest outside
	logs       logs
	http       httpUse
}

// A operator tells the operator what the guest is not told.
type operator interface {
	report(level slog.Level, message string, args ...any)
}

// open makes u the use of a call, with limits that have no zero field.
func (u *use) open(ctx context.Context, c *Call, operator operator) {
	u.call, u.parent, u.operator, u.now = c, ctx, operator, c.Now
	u.limits = c.Limits.Or(DefaultLimits(kindOf(c)))
	u.guard = kindOf(c) != abi.KindTool && c.Kind != abi.KindHook
	u.logs = logs{use: u, left: u.limits.LogBytes}
}

// countCall ends the call if it has made too many host calls or its time is up.
func (u *use) countCall() {
	if u.hostCalls >= u.limits.HostCalls {
		panic(&abort{abi.HostcallLimit, fmt.Sprintf("more host calls than %d", u.limits.HostCalls)})
	}
	if u.hostCalls++; u.hostCalls%8 == 0 { // one that takes long has a deadline, or is charged for
		u.checkTime()
	}
}

// checkTime ends the call if its time is up.
func (u *use) checkTime() {
	if time.Since(u.started) >= u.bound || u.parent.Err() != nil {
		panic(u.timeUp())
	}
}

// lend returns the context of what runs for somebody who may keep it.
func (u *use) lend() context.Context {
	u.lent = true
	return u.ctx
}

// timeUp says why there is no more time.
func (u *use) timeUp() *abort {
	if u.parent.Err() != nil {
		return &abort{abi.Cancelled, "the caller gave up"}
	}
	return &abort{abi.GuestTimeout, fmt.Sprintf("limit %v", u.bound)}
}

// trap ends the call because the guest broke the rules.
func trap(format string, args ...any) {
	panic(&abort{abi.GuestTrap, fmt.Sprintf(format, args...)})
}

// An abort ends a call. Host functions panic with it.
type abort struct {
	code   abi.Code
	detail string
}

func (a *abort) Error() string { return string(a.code) + ": " + a.detail }

// grants returns what the guest may do at this moment.
func (u *use) grants() capability.Set {
	if !u.live {
		return capability.Set{}
	}
	return u.call.Grants
}

// A refusal is why a host call had no effect. It becomes an [abi.ErrorReply].
type refusal struct {
	code    abi.Code
	message string
	need    string // the capability that is missing, if that is the reason
}

func (r *refusal) Error() string { return string(r.code) + ": " + r.message }

func refuse(code abi.Code, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// missing refuses for want of a capability.
func missing(need string) *refusal {
	need = printable(need, maxListedBytes)
	return &refusal{code: abi.CapabilityDenied, message: "needs " + need, need: need}
}

// GuardMay reports whether a guard may be granted a capability, given as its line:
// log and kv, and nothing that reaches further.
func GuardMay(line string) bool { return line == "log" || strings.HasPrefix(line, "kv ") }

// permit reports why a call that needs a capability is refused: because it is
// not granted, not effective yet, has nothing to work on, or because a guard
// asks for more than it may have.
func (u *use) permit(need string, granted, present bool) *refusal {
	if !u.live || !granted || !present || u.guard && !GuardMay(need) {
		return missing(need)
	}
	u.used = listed(u.used, need)
	return nil
}

// deny adds to what the receipt says was denied. What does not fit is counted.
func (u *use) deny(need string) {
	before := len(u.denied)
	u.denied = listed(u.denied, need)
	if len(u.denied) == before && !slices.Contains(u.denied, printable(need, maxListedBytes)) {
		u.deniedMore++
	}
}

// traced tells the receipt and the tracer of a finished host call.
func (u *use) traced(h HostCall, from time.Time, r *refusal) {
	h.Code = abi.OK
	if r != nil {
		h.Code, h.Need = r.code, r.need
		switch {
		case r.need != "":
			u.deny(r.need)
		case r.code == abi.EgressDenied: // what no grant could allow
			u.deny(r.message)
		}
	}
	if u.call.Trace != nil {
		h.Detail = u.clean(h.Detail)
		h.At, h.Took = from.Sub(u.started), time.Since(from)
		u.call.Trace(h)
	}
}

// clean returns a text without the secrets of the call.
func (u *use) clean(text string) string {
	text, _ = u.call.Access.Secrets.scrub(text)
	return text
}

// body returns a copy of what a host call carries, for the tracer; nil if it does not
// ask.
func (u *use) body(b []byte) []byte {
	if u.call.Trace == nil || !u.call.TraceBodies {
		return nil
	}
	return []byte(u.clean(string(b)))
}

// carries tells the tracer of the documents of a host call; http has told of its bodies.
func (u *use) carries(h *HostCall, request, body, reply []byte) {
	if h.Name != "http" {
		h.Sent, h.Got = append(u.body(request), u.body(body)...), u.body(reply)
	}
}
