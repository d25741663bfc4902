package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A function is a host function that a guest may import. It runs on the
// goroutine of the call, reads its parameters from stack and writes its result
// there. It ends the call by panicking with an [*abort].
type function struct {
	name   string
	typ    string // parameters and result: i is i32, I is i64, as in "iI:i"
	traits traits
	run    func(f *frame, mem api.Memory, stack []uint64)
}

// traits of a function.
type traits uint8

const (
	counted   traits = 1 << iota // as a host call
	onMemory                     // works on the guest's linear memory
	forGuards                    // a module may import it only if all it offers is guards
)

// hostModules are all modules that can be imported. Which functions have an
// effect is decided for each call.
var hostModules = map[string][]function{
	abi.ImportExtism: extismFunctions,
	abi.ImportHost:   hostFunctions,
	abi.ImportWASI:   wasiFunctions,
}

func lookup(module, name string) (function, bool) {
	for _, f := range hostModules[module] {
		if f.name == name {
			return f, true
		}
	}
	return function{}, false
}

// types returns the types of the parameters and the results.
func (f function) types() (params, results []api.ValueType) {
	list := &params
	for _, c := range f.typ {
		switch c {
		case 'i':
			*list = append(*list, api.ValueTypeI32)
		case 'I':
			*list = append(*list, api.ValueTypeI64)
		case ':':
			list = &results
		}
	}
	return params, results
}

func (f function) funcType() wasmbin.FuncType {
	convert := func(types []api.ValueType) []wasmbin.ValueType {
		var all []wasmbin.ValueType
		for _, t := range types {
			all = append(all, wasmbin.ValueType(t))
		}
		return all
	}
	params, results := f.types()
	return wasmbin.FuncType{Params: convert(params), Results: convert(results)}
}

// install makes a module of host functions.
func install(ctx context.Context, runtime wazero.Runtime, name string, funcs []function) error {
	b := runtime.NewHostModuleBuilder(name)
	for _, fn := range funcs {
		params, results := fn.types()
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
			f, ok := ctx.Value(frameKey{}).(*frame)
			if !ok {
				panic(&abort{abi.GuestTrap, fn.name + " outside a call"})
			}
			if fn.traits&counted == 0 {
				fn.run(f, m.Memory(), stack)
				return
			}
			f.countCall()
			fn.run(f, m.Memory(), stack)
		}), params, results).Export(fn.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// countCall ends the call if it has made too many host calls or its time is up.
func (f *frame) countCall() {
	if f.hostCalls >= f.limits.HostCalls {
		panic(&abort{abi.HostcallLimit, fmt.Sprintf("more host calls than %d", f.limits.HostCalls)})
	}
	f.hostCalls++
	f.checkTime()
}

// checkTime ends the call if its time is up.
func (f *frame) checkTime() {
	if f.ctx.Err() != nil {
		panic(f.timeUp())
	}
}

// timeUp says why there is no more time.
func (f *frame) timeUp() *abort {
	if f.parent.Err() != nil {
		return &abort{abi.Cancelled, "the caller gave up"}
	}
	return &abort{abi.GuestTimeout, fmt.Sprintf("limit %v", f.bound)}
}

// trap ends the call because the guest broke the rules.
func trap(format string, args ...any) {
	panic(&abort{abi.GuestTrap, fmt.Sprintf(format, args...)})
}

// bytesAt returns the n bytes of linear memory at ptr, shared with the guest.
func bytesAt(mem api.Memory, ptr, n uint64) []byte {
	if ptr+n < ptr || ptr+n > uint64(mem.Size()) {
		trap("bad pointer: %d bytes at %d are not in memory", n, ptr)
	}
	b, _ := mem.Read(uint32(ptr), uint32(n))
	return b
}

// grants returns what the guest may do at this moment.
func (f *frame) grants() capability.Set {
	if !f.live {
		return capability.Set{}
	}
	return f.call.Grants
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
func (f *frame) permit(need string, granted, present bool) *refusal {
	if !f.live || !granted || !present || f.guard && !GuardMay(need) {
		return missing(need)
	}
	f.used = listed(f.used, need)
	return nil
}

// deny adds to what the receipt says was denied. What does not fit is counted.
func (f *frame) deny(need string) {
	before := len(f.denied)
	f.denied = listed(f.denied, need)
	if len(f.denied) == before && !slices.Contains(f.denied, printable(need, maxListedBytes)) {
		f.deniedMore++
	}
}

// traced tells the receipt and the tracer of a finished host call.
func (f *frame) traced(h HostCall, from time.Time, r *refusal) {
	h.Code = abi.OK
	if r != nil {
		h.Code, h.Need = r.code, r.need
		switch {
		case r.need != "":
			f.deny(r.need)
		case r.code == abi.EgressDenied: // what no grant could allow
			f.deny(r.message)
		}
	}
	if f.call.Trace != nil {
		h.Detail = f.clean(h.Detail)
		h.At, h.Took = from.Sub(f.started), time.Since(from)
		f.call.Trace(h)
	}
}

// clean returns a text without the secrets of the call.
func (f *frame) clean(text string) string {
	text, _ = f.call.Access.Secrets.scrub(text)
	return text
}

// body returns a copy of what a host call carries, for the tracer; nil if it does not
// ask.
func (f *frame) body(b []byte) []byte {
	if f.call.Trace == nil || !f.call.TraceBodies {
		return nil
	}
	return []byte(f.clean(string(b)))
}
