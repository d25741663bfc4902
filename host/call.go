package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Call runs one export, in the state that the module begins with, and returns what it answered. Every
// other end is a [*GuestError]; ctx ending early is one with the code cancelled.
// Call returns soon after the deadline of c.Limits, the last of its fuel or the end
// of ctx, whichever is first. It starts no goroutine that outlives it, and keeps
// nothing of c. Only
// as many guards run at once as there are processors; the deadline does not
// include the wait for a turn, which ctx bounds.
//
// Success is an export that returned, with no code or the code 0, that set no
// error and an output of at least one byte. Leaving by proc_exit is never
// success, not even with 0, but for a command: of a raw tool whose export is
// [abi.ExportStart] an exit code is the code that it returned.
func (m *Module) Call(ctx context.Context, c *Call) (*Reply, error) {
	f := newFrame(ctx, m, c)
	err := f.run()
	receipt := f.receipt()
	if err != nil {
		failure := f.failure(err)
		receipt.Code, receipt.In = failure.Code, failure.Receipt.In
		failure.Receipt = receipt
		return nil, failure
	}
	receipt.Code = abi.OK
	reply := &Reply{Output: f.output, Receipt: receipt}
	f.forget()
	return reply, nil
}

// frames are those that were forgotten.
var frames = sync.Pool{New: func() any { return &frame{home: homes.Add(1)} }}

// forget ends the use of a frame, which another call may have if nobody else knows it.
func (f *frame) forget() {
	if !f.lent {
		*f = frame{home: f.home}
		frames.Put(f)
	}
}

// A frame is the state of one call. Host functions find it in the context, so
// the instance itself holds no state of the host's.
type frame struct {
	use
	module *Module

	clocks  [2]deadline // of making an instance, and of the call
	running *deadline   // the clock that runs, which is ctx, too; nil until then
	wall    time.Duration
	stopped bool // that clock
	expired bool // the time was up, or the caller had given up, when it was stopped

	turn     bool // the frame has a turn of a guard
	returned bool // the export did

	home     uint32    // the place in which it parks its instance
	parked   *instance // was, and is to be used
	entered  bool      // the engine counts the call
	instance *instance // nil until there is one
	memory   memory
	fuel     fuel
	clock    wasi
	extism   extism

	input  []byte
	reply  []byte
	output []byte
}

type frameKey struct{}

func newFrame(ctx context.Context, m *Module, c *Call) *frame {
	f := frames.Get().(*frame)
	f.module = m
	f.open(ctx, c, m)
	f.memory.limit = f.limits.MemoryBytes
	f.extism.blocks.memory = &f.memory
	f.clock.randomness = f.randomness()
	return f
}

// report implements [operator].
func (m *Module) report(level slog.Level, message string, args ...any) {
	m.engine.log.Log(context.Background(), level, message, append([]any{"module", m.digest.Short()}, args...)...)
}

// run makes an instance, calls the export and says why there is no output.
func (f *frame) run() (err error) {
	m := f.module
	ready := true
	if f.parked = m.engine.parked.take(f.home, m.code, f.profile()); f.parked == nil {
		if ready, err = m.engine.enter(m.code); err != nil {
			return &abort{abi.Cancelled, err.Error()}
		}
	}
	f.entered = true
	defer func() {
		if f.entered {
			m.engine.leave(m.code)
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			err = f.bug("the host", r, debug.Stack())
		}
	}()
	if !ready {
		if err := m.engine.bringBack(f.parent, m); err != nil {
			return f.notBroughtBack(err)
		}
	}
	defer f.leave()
	return f.attempt()
}

// notBroughtBack says why a call ends for which no code was there: the host failed, and nobody else, or
// the caller gave up.
func (f *frame) notBroughtBack(err error) error {
	if f.parent.Err() != nil {
		return &abort{abi.Cancelled, "the caller gave up before the module's code was back in memory"}
	}
	return f.hostFailed("a module's code was not brought back into memory", err)
}

// hostFailed reports what the host could not do before any code of the call's ran, which is a failure of
// the host's and of nobody else.
func (f *frame) hostFailed(what string, err error) *abort {
	f.module.report(slog.LevelError, what, "err", err, "stack", string(debug.Stack()))
	return &abort{abi.StorageUnavailable, err.Error()}
}

// leave ends what attempt has begun.
func (f *frame) leave() {
	defer func() {
		if f.turn {
			<-f.module.engine.judging
		}
		f.logs.flush()
	}()
	f.stopClock()
	if f.instance != nil {
		f.fuel.used = f.spent()
	}
	if p := f.module.probe; p != nil && f.live {
		p.tell(f)
	}
	f.putInstance()
	if f.parked != nil { // which was not used
		f.park(f.parked, f.parked.since)
	}
}

func (f *frame) attempt() error {
	m := f.module
	if !m.entries[f.call.Export] {
		return &abort{abi.ModuleABI, fmt.Sprintf("no export %q that can be called", printable(f.call.Export, 80))}
	}
	if n := int64(len(f.call.Input)); n > f.limits.InputBytes {
		return &abort{abi.GuestMemory, fmt.Sprintf("input of %d bytes exceeds limit %d", n, f.limits.InputBytes)}
	}
	if m.minimum > f.memory.limit {
		return &abort{abi.GuestMemory, fmt.Sprintf("memory begins with %d bytes, limit %d", m.minimum, f.memory.limit)}
	}
	if f.guard && (f.parked != nil || f.hasImage()) { // then guards that take turns take the same instances, too
		if err := f.takeTurn(); err != nil {
			return err
		}
	}
	now := time.Now()
	if !f.takeIdle(now) {
		f.startClock(now, f.limits.Startup)
		if err := f.getInstance(); err != nil {
			return err
		}
		now = f.stopClock()
		f.wall = 0
	}
	if f.guard && !f.turn { // code of the guest's ran before, which is not to keep others waiting
		if err := f.takeTurn(); err != nil {
			return err
		}
		now = time.Now()
	}
	f.startClock(now, f.limits.Wall)
	f.fill(f.limits.Fuel)
	f.input, f.extism.in = f.call.Input, f.call.Input
	f.live = true
	if m.probe != nil {
		m.probe.arm(f)
	}
	code, err := f.invoke(f.call.Export)
	f.returned = err == nil // what left otherwise has an instance that is in the midst of something
	f.stopClock()
	left, exits := errors.AsType[*exited](err)
	if exits {
		err = nil
	}
	switch {
	case err != nil:
		return err
	case f.parent.Err() == nil && f.expired:
		return &abort{abi.GuestTimeout, "returned past the deadline"}
	case f.extism.failed:
		return &abort{abi.GuestError, f.extism.failure}
	case exits && left.code != 0:
		return &abort{abi.GuestError, left.Error()}
	case code != 0:
		return &abort{abi.GuestError, fmt.Sprintf("return code %d", code)}
	case len(f.output) == 0:
		return &abort{abi.GuestOutputInvalid, "no output"}
	}
	return nil
}

// takeTurn waits for a turn of a guard. The wait is not counted.
func (f *frame) takeTurn() error {
	select {
	case f.module.engine.judging <- struct{}{}:
		f.turn = true
		return nil
	default:
	}
	select {
	case f.module.engine.judging <- struct{}{}:
		f.turn = true
		return nil
	case <-f.parent.Done():
		return &abort{abi.Cancelled, "the caller gave up before the guard could run"}
	}
}

// startClock gives what runs next a deadline.
func (f *frame) startClock(now time.Time, bound time.Duration) {
	f.started, f.bound = now, bound
	next := &f.clocks[0]
	if next.frame != nil {
		next = &f.clocks[1]
	}
	next.parent, next.frame, next.at = f.parent, f, now.Add(bound)
	f.running, f.ctx, f.stopped = next, next, false
	if f.now.IsZero() {
		f.now = now
	}
}

// stopClock ends the time of what ran, once, and returns when that was.
func (f *frame) stopClock() time.Time {
	if f.running == nil || f.stopped {
		return f.started.Add(f.wall)
	}
	f.stopped = true
	f.wall = time.Since(f.started)
	now := f.started.Add(f.wall)
	f.expired = f.running.stop(now) != context.Canceled
	return now
}

// invoke calls one export and returns its code, unless the caller has given up.
func (f *frame) invoke(export string) (int32, error) {
	if f.parent.Err() != nil {
		return 0, f.timeUp()
	}
	f.instance.depth.Set(uint64(f.limits.Depth))
	return f.instance.call(f.ctx, export)
}

func (f *frame) receipt() Receipt {
	return Receipt{
		Module: f.module.name, WallUS: f.wall.Microseconds(), Fuel: f.fuel.used, PeakBytes: f.memory.peak,
		HostCalls: f.hostCalls, Used: f.used, Denied: f.denied, DeniedMore: f.deniedMore, LogBytes: int(f.limits.LogBytes - f.logs.left),
	}
}

// failure says what an error means.
func (f *frame) failure(err error) *GuestError {
	if before, ok := errors.AsType[*GuestError](err); ok { // of the frame that came before
		return before
	}
	e := &GuestError{Code: abi.GuestTrap}
	a, aborted := errors.AsType[*abort](err)
	switch {
	case aborted && a.code != abi.Cancelled:
		e.Code, e.Detail = a.code, a.detail
	case f.parent.Err() != nil || aborted:
		e.Code, e.Detail = abi.Cancelled, "the caller gave up"
		if aborted {
			e.Detail = a.detail
		}
	case f.expired:
		e.Code, e.Detail = abi.GuestTimeout, fmt.Sprintf("limit %v", f.bound)
	case strings.HasSuffix(err.Error(), "stack overflow") && !strings.Contains(err.Error(), "\n"):
		e.Code, e.Detail = abi.GuestStack, "stack overflow"
	default:
		// Host functions panic with nothing that is not known above.
		if first, _, _ := strings.Cut(err.Error(), "\n"); strings.HasSuffix(first, "(recovered by wazero)") {
			bug := f.bug("the engine", first, []byte(err.Error()))
			e.Code, e.Detail = bug.code, bug.detail
			break
		}
		e.Detail = f.trace(err)
	}
	if e.Code == abi.GuestTrap && f.memory.refused {
		e.Code = abi.GuestMemory
		e.Detail += fmt.Sprintf("; more memory than %d bytes was refused before", f.memory.limit)
	}
	e.Message = e.Code.Sentence()
	switch e.Code {
	case abi.GuestError:
		e.Message = a.detail
	case abi.GuestFuel, abi.GuestTimeout, abi.GuestMemory, abi.GuestStack, abi.GuestTrap:
		e.Receipt.In = f.where(err)
	}
	if e.Receipt.In != "" && (aborted || e.Code == abi.GuestTimeout) { // else the trace is there
		e.Detail += "; in " + e.Receipt.In
	}
	if tail := f.logs.tail(); tail != "" {
		e.Detail += "; stderr: " + tail
	}
	return e
}

// where names the innermost function of the guest's that had not returned.
func (f *frame) where(err error) string {
	for at := range f.module.code.space.Frames(err) {
		return functionAt(at)
	}
	return ""
}

func functionAt(at meter.Frame) string {
	return strings.TrimSpace(fmt.Sprintf("func[%d] %s", at.Index, printable(at.Name, maxNameBytes)))
}

// trace returns what the engine says of a trap, with the innermost functions of the guest's that
// had not returned, as one line.
func (f *frame) trace(err error) string {
	const most = 8
	first, _, _ := strings.Cut(err.Error(), "\n")
	parts := []string{printable(first, 200)}
	for at := range f.module.code.space.Frames(err) {
		if len(parts) > most {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, "in "+functionAt(at))
	}
	return strings.Join(parts, " | ")
}

// catch is deferred by a host function. A panic of it that does not end the call as [abort] and [exited] do is
// a bug of the host's.
func (f *frame) catch(function string) {
	r := recover()
	switch r.(type) {
	case nil:
	case *abort, *exited:
		panic(r)
	default:
		panic(f.bug("host function "+function, r, debug.Stack()))
	}
}

// bug reports a panic that is none of the guest's. Of a call that has begun nobody knows what it has done.
func (f *frame) bug(where string, r any, stack []byte) *abort {
	f.module.report(slog.LevelError, "panic in a guest call", "where", where, "panic", fmt.Sprint(r), "stack", string(stack))
	code := abi.StorageUnavailable
	if f.live {
		code = abi.OutcomeUnknown
	}
	return &abort{code, fmt.Sprintf("%s failed, and no guest: %s", where, printable(fmt.Sprint(r), 200))}
}
