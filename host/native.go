package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// CallNative calls a guest that is compiled for this machine, as [Module.Call] calls
// one in a sandbox: with the same host functions, which judge by the same grants and
// limits and give the same replies, and with the same ends. Export and Config of c are
// not looked at.
//
// It is for the unit tests of a guest's author and for nothing else: what runs natively
// is contained by nothing. Work, memory and depth are not counted, so a call never ends
// with guest_fuel, guest_memory or guest_stack; and a guest that loops is not stopped,
// because only host calls look at the clock.
//
// guest gets c.Input, runs on a goroutine of its own and returns its output. A panic of
// it is a guest_trap. When the call has to end within a host call, the goroutine that
// made it ends, as by [runtime.Goexit].
func CallNative(ctx context.Context, c *Call, guest func(n *Native, input []byte) []byte) (*Reply, error) {
	n := &Native{}
	n.open(ctx, c, nobody{})
	n.drawn = n.randomness()
	var cancel context.CancelFunc
	n.started, n.bound = time.Now(), n.limits.Wall
	n.ctx, cancel = context.WithDeadline(ctx, n.started.Add(n.bound))
	defer cancel()
	var output []byte
	err := error(nil)
	if size := int64(len(c.Input)); size > n.limits.InputBytes {
		err = &abort{abi.GuestMemory, fmt.Sprintf("input of %d bytes exceeds limit %d", size, n.limits.InputBytes)}
	} else {
		n.live = true
		output, err = n.run(guest)
	}
	took := time.Since(n.started)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && n.ended == nil {
		n.giveOutput()
	}
	switch {
	case n.ended != nil:
		err = n.ended
	case err != nil:
	case n.ctx.Err() != nil || took >= n.bound: // a timer may fire a little later
		err = n.timeUp()
	case int64(len(output)) > n.limits.OutputBytes:
		err = &abort{abi.GuestOutputTooLarge, fmt.Sprintf("output of %d bytes exceeds limit %d", len(output), n.limits.OutputBytes)}
	case len(output) == 0:
		err = &abort{abi.GuestOutputInvalid, "no output"}
	}
	receipt := Receipt{Code: abi.OK, WallUS: took.Microseconds(), HostCalls: n.hostCalls, Used: n.used, Denied: n.denied, DeniedMore: n.deniedMore,
		LogBytes: int(n.limits.LogBytes - n.logs.left)}
	if a, ok := errors.AsType[*abort](err); ok {
		receipt.Code = a.code
		return nil, &GuestError{Code: a.code, Message: a.code.Sentence(), Detail: a.detail, Receipt: receipt}
	}
	return &Reply{Output: output, Receipt: receipt}, nil
}

// giveOutput counts the host call by which a module sets its output. The caller holds
// mu.
func (n *Native) giveOutput() {
	defer func() { n.ended, _ = recover().(*abort) }()
	n.countCall()
}

// A Native is the host's side of one call of a guest that runs natively. It is safe for
// concurrent use, and is not used after the call.
type Native struct {
	mu sync.Mutex
	use
	drawn randomness
	ended *abort // nil while the call may go on
}

// nobody reads what the host of a test has to report.
type nobody struct{}

func (nobody) report(slog.Level, string, ...any) {}

// run runs the guest until it returns, panics or is ended.
func (n *Native) run(guest func(n *Native, input []byte) []byte) (output []byte, err error) {
	done := make(chan struct{})
	err = &abort{abi.GuestTrap, "the guest ended its goroutine"}
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = &abort{abi.GuestTrap, fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
			}
		}()
		output = guest(n, n.call.Input)
		err = nil
	}()
	<-done
	return output, err
}

// HostCall makes a host call, one of [abi.HostFunctions] that take a request document;
// body is what comes beside it, if the function takes that. Neither is kept, and the
// reply is the caller's. If refused is true the call had no effect and the reply is an
// [abi.ErrorReply].
func (n *Native) HostCall(function string, request, body []byte) (reply []byte, refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.leave()
	for _, table := range [][]hostFunction{callFunctions, keepFunctions} {
		for _, f := range table {
			if f.name == function {
				return n.answer(f, request, body)
			}
		}
	}
	panic(fmt.Sprintf("host: no host function %q", function))
}

func (n *Native) answer(f hostFunction, request, body []byte) (reply []byte, refused bool) {
	n.goOn()
	n.countCall()
	if f.traits&withBody == 0 {
		body = nil
	}
	h := HostCall{Name: f.name}
	from := time.Now()
	no := n.tooLong(f.name, int64(len(request)), int64(len(body)), n.limits.MemoryBytes)
	if no == nil {
		reply, no = f.run(&n.use, &h, append([]byte(nil), request...), append([]byte(nil), body...))
		n.carries(&h, request, body, reply)
	}
	n.traced(h, from, no)
	if no != nil {
		return no.told(), true
	}
	return reply, false
}

// Random fills p with the randomness of the call.
func (n *Native) Random(p []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.leave()
	n.goOn()
	n.drawn.draw(uint64(len(p)))
	n.drawn.random(p)
}

// goOn ends the goroutine if the call has ended.
func (n *Native) goOn() {
	if n.ended != nil {
		panic(n.ended)
	}
}

// leave ends the goroutine if what it did ends the call. The caller holds mu.
func (n *Native) leave() {
	p := recover()
	if p == nil {
		return
	}
	a, ok := p.(*abort)
	if !ok {
		panic(p)
	}
	n.ended = a
	runtime.Goexit()
}

// NewEgressTo makes an egress that asks a function in place of the network; every rule
// stays, and every name resolves to one public address. The function gets the request
// as it would be sent, secrets in it, and its answer's body is closed. It is for
// tests, as [CallNative] is.
func NewEgressTo(answer func(*http.Request) (*http.Response, error)) *Egress {
	return &Egress{wire: answered(answer)}
}

// answered is the wire to a function.
type answered func(*http.Request) (*http.Response, error)

func (answered) recorded() bool { return true }

func (answered) resolve(_ context.Context, h *hop) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(h.url.Hostname()); err == nil {
		return []netip.Addr{addr}, nil
	}
	return []netip.Addr{publicAddress}, nil
}

func (a answered) send(ctx context.Context, h *hop, _ []netip.Addr) (*http.Response, error) {
	request, err := h.request(ctx)
	if err != nil {
		return nil, err
	}
	response, err := a(request)
	switch {
	case err != nil:
		return nil, err
	case response == nil:
		return nil, errNotRecorded
	case response.Body == nil:
		response.Body = http.NoBody
	}
	return response, nil
}
