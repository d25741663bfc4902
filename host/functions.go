package host

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

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
			defer f.catch(fn.name)
			if fn.traits&counted != 0 {
				f.countCall()
			}
			fn.run(f, m.Memory(), stack)
		}), params, results).Export(fn.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// bytesAt returns the n bytes of linear memory at ptr, shared with the guest.
func bytesAt(mem api.Memory, ptr, n uint64) []byte {
	if ptr+n < ptr || ptr+n > uint64(mem.Size()) {
		trap("bad pointer: %d bytes at %d are not in memory", n, ptr)
	}
	b, _ := mem.Read(uint32(ptr), uint32(n))
	return b
}
