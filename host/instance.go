package host

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandboxd/sandboxd/host/meter"
)

// A code is compiled code. Modules that differ in custom sections alone share it.
type code struct {
	engine   *Engine
	compiled wazero.CompiledModule
	memory   bool     // has a linear memory
	start    bool     // has a start function
	globals  []string // exports of the guest's own globals that can change
	// whole says that memory and these globals are all that a call can change, so an
	// image of them is an image of an instance.
	whole  bool
	images map[profile]*image // belongs to the engine's pool
}

// An instance is a module with memory, globals and tables of its own. One call has it
// at a time, and only guests of one code ever ran in it.
type instance struct {
	code   *code
	module api.Module
	linear *linear // nil if there is no memory

	fuel, depth api.MutableGlobal
	globals     []api.MutableGlobal
	functions   map[string]api.Function // exports that were called
	stack       [1]uint64
	before

	image *image // what it is set back to after a call; nil if it is used once

	// Of an instance that waits for a call: they belong to the pool.
	kept         int64 // bytes it holds
	since        time.Time
	older, newer *instance
}

// before is what the host has to know of what ran before a call.
type before struct {
	clock      time.Duration // of the monotonic clock
	denied     []string      // see [Receipt]
	deniedMore int
}

// instantiate makes an instance in which no code has run. The frame is the one that has it
// first.
func (c *code) instantiate(f *frame) (*instance, error) {
	inst := &instance{code: c, functions: map[string]api.Function{}}
	// No code of the guest runs here: the meter took the start function out.
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(noRandom{})
	ctx := context.Context(f.ctx)
	if c.memory {
		room, err := reserve(f.limits.MemoryBytes &^ (wasmPage - 1))
		if err != nil {
			return nil, err
		}
		inst.linear = &linear{region: room, memory: &f.memory}
		ctx = experimental.WithMemoryAllocator(ctx, inst.linear)
	}
	var err error
	if inst.module, err = c.engine.runtime.InstantiateModule(ctx, c.compiled, config); err != nil {
		if inst.linear != nil {
			inst.linear.Free()
		}
		return nil, err
	}
	inst.fuel = inst.global(meter.Fuel)
	inst.depth = inst.global(meter.Depth)
	for _, name := range c.globals {
		inst.globals = append(inst.globals, inst.global(name))
	}
	return inst, nil
}

const wasmPage = 64 << 10

func (inst *instance) global(name string) api.MutableGlobal {
	return inst.module.ExportedGlobal(name).(api.MutableGlobal)
}

// noRandom is the engine's own source of randomness, which nothing reads: guests
// draw from the frame.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, errors.New("no randomness here") }

// close frees the instance and its memory.
func (inst *instance) close() { inst.module.Close(context.Background()) }

// give hands the instance to a frame.
func (inst *instance) give(f *frame) {
	f.instance = inst
	f.denied, f.deniedMore = inst.denied, inst.deniedMore
	if inst.linear != nil {
		inst.linear.memory = &f.memory
		f.memory.use(inst.linear.size)
	}
}

// call calls an export and returns the low 32 bits of its result, if it has one.
func (inst *instance) call(ctx context.Context, export string) (int32, error) {
	fn := inst.functions[export]
	if fn == nil {
		fn = inst.module.ExportedFunction(export)
		inst.functions[export] = fn
	}
	inst.stack[0] = 0
	err := fn.CallWithStack(ctx, inst.stack[:])
	return int32(uint32(inst.stack[0])), err
}

// maxKeptStack is the most native stack that an instance keeps for an export. It grows
// with the calls that a guest makes, and never shrinks.
const maxKeptStack = 256 << 10

// trim forgets the functions whose native stack has grown too large, and returns the bytes
// of the others. The engine does not say how large a stack is; where it cannot be seen, no
// function is kept.
func (inst *instance) trim() int64 {
	kept := int64(0)
	for export, fn := range inst.functions {
		size := stackOf(fn)
		if size < 0 || size > maxKeptStack {
			delete(inst.functions, export)
			continue
		}
		kept += int64(size)
	}
	return kept
}

// stackOf returns the bytes of the native stack that the engine keeps for a function, or -1.
func stackOf(fn api.Function) int {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return -1
	}
	if stack := v.Elem().FieldByName("stack"); stack.Kind() == reflect.Slice {
		return stack.Len()
	}
	return -1
}
