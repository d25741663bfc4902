package host

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandboxd/sandboxd/host/meter"
)

// A code is compiled code. Modules that differ in custom sections alone share it.
type code struct {
	engine  *Engine
	from    Digest   // of what is compiled of the module: what the code is known by
	source  Digest   // of the rewritten module, which others may have, too
	memory  bool     // has a linear memory
	start   bool     // has a start function
	windows bool     // see package meter
	globals []string // exports of the guest's own globals that can change
	// whole says that memory and these globals are all that a call can change, so an
	// image of them is an image of an instance.
	whole  bool
	images map[profile]*image // belongs to the engine's pool
	spot   uint32             // where its instances park
	space  meter.Space        // of the author's functions
	// bringing holds one token of the call that brings it back into memory.
	bringing chan struct{}
	residency
}

// An instance is a module with memory, globals and tables of its own. One call has it
// at a time, and only guests of one code ever ran in it.
type instance struct {
	code   *code
	module api.Module
	linear *linear // nil if there is no memory

	fuel, depth api.MutableGlobal
	arena       *arena // nil without windows
	globals     []api.MutableGlobal
	exports     map[string]*export // those that were called
	called      *export            // the last of them
	stacks      int                // native stack of all
	stack       [1]uint64
	before

	image    *image // what it is set back to after a call; nil if it is used once
	restored int    // times that it was

	// Of an instance that waits for a call: they belong to the pool.
	kept         int64 // bytes it holds
	since        time.Time
	older, newer *instance
}

// An export is a function of an instance that can be called.
type export struct {
	name  string
	fn    api.Function
	stack int // bytes of native stack that the engine keeps for it
}

// before is what the host has to know of what ran before a call.
type before struct {
	clock      time.Duration // of the monotonic clock
	denied     []string      // see [Receipt]
	deniedMore int
}

// instantiate makes an instance in which no code has run. The frame is the one that has it
// first. What keeps the host from making it is no failure of the guest's.
func (c *code) instantiate(f *frame) (*instance, error) {
	inst := &instance{code: c, exports: map[string]*export{}}
	// No code of the guest runs here: the meter took the start function out.
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(noRandom{})
	ctx := f.lend()
	var err error
	most := f.limits.MemoryBytes &^ (wasmPage - 1)
	if c.memory {
		room, err := c.engine.reserve(most)
		if err != nil {
			return nil, f.hostFailed(noMemory, err)
		}
		inst.linear = &linear{region: room, memory: &f.memory}
	}
	fail := func(err error) (*instance, error) {
		if inst.linear != nil {
			inst.linear.Free()
		}
		if inst.arena != nil {
			inst.arena.close()
		}
		return nil, err
	}
	if c.windows {
		if inst.arena, err = c.engine.newArena(ctx, most+arenaBytes); err != nil {
			return fail(f.hostFailed(noMemory, err))
		}
		if inst.arena.own = inst.linear; inst.linear != nil {
			inst.linear.arena = inst.arena
		}
		ctx = experimental.WithImportResolver(ctx, inst.arena.resolve)
	}
	if inst.linear != nil {
		ctx = experimental.WithMemoryAllocator(ctx, inst.linear)
	}
	if inst.module, err = c.engine.runtime.InstantiateModule(ctx, c.compiled, config); err != nil {
		if !strings.HasSuffix(err.Error(), "out of bounds memory access") { // of a data segment
			err = f.hostFailed("an instance was not made", fmt.Errorf("instance: %w", err))
		}
		return fail(err)
	}
	inst.fuel = inst.global(meter.Fuel)
	inst.depth = inst.global(meter.Depth)
	for _, name := range c.globals {
		inst.globals = append(inst.globals, inst.global(name))
	}
	return inst, nil
}

const noMemory = "no memory for an instance"

const wasmPage = 64 << 10

func (inst *instance) global(name string) api.MutableGlobal {
	return inst.module.ExportedGlobal(name).(api.MutableGlobal)
}

// noRandom is the engine's own source of randomness, which nothing reads: guests
// draw from the frame.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, errors.New("no randomness here") }

// close frees the instance and its memory.
func (inst *instance) close() {
	inst.module.Close(context.Background())
	if inst.arena != nil {
		inst.arena.close()
	}
}

// give hands the instance to a frame.
func (inst *instance) give(f *frame) {
	f.instance = inst
	f.denied, f.deniedMore = inst.denied, inst.deniedMore
	if inst.linear != nil {
		inst.linear.memory = &f.memory
		f.memory.use(inst.linear.size)
	}
	f.extism.blocks.arena = inst.arena
}

// shrink makes the memory smaller, to a size that is not 0. The engine has no way for that, but
// asks its allocator when memory grows, and takes what it gets. It is false if nothing was done.
func (inst *instance) shrink(size int64) bool {
	inst.linear.cut = size
	_, ok := inst.module.Memory().Grow(1)
	inst.linear.cut = 0
	return ok && inst.linear.size == size && int64(inst.module.Memory().Size()) == size
}

// call calls an export and returns the low 32 bits of its result, if it has one.
func (inst *instance) call(ctx context.Context, name string) (int32, error) {
	x := inst.exports[name]
	if x == nil {
		x = &export{name: name, fn: inst.module.ExportedFunction(name)}
		inst.exports[name] = x
	}
	inst.called = x
	inst.stack[0] = 0
	err := x.fn.CallWithStack(ctx, inst.stack[:])
	return int32(uint32(inst.stack[0])), err
}

// maxKeptStack is the most native stack that an instance keeps for an export. It grows
// with the calls that a guest makes, and never shrinks.
const maxKeptStack = 256 << 10

// trim forgets the export that was called last if its native stack has grown too large. The
// engine does not say how large a stack is; where it cannot be seen, no function is kept.
func (inst *instance) trim() {
	x := inst.called
	inst.stacks -= x.stack
	if x.stack = stackOf(x.fn); x.stack < 0 || x.stack > maxKeptStack {
		delete(inst.exports, x.name)
		return
	}
	inst.stacks += x.stack
}

// stackOf returns the bytes of the native stack that the engine keeps for a function, or -1.
func stackOf(fn api.Function) int {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return -1
	}
	v = v.Elem()
	stackField.Do(func() {
		if f, ok := v.Type().FieldByName("stack"); ok && f.Type == reflect.TypeFor[[]byte]() {
			stackType, stackIndex = v.Type(), f.Index[0]
		}
	})
	if v.Type() != stackType {
		return -1
	}
	return v.Field(stackIndex).Len()
}

// Where the engine's functions have their stack. All that are compiled are of one type.
var (
	stackField sync.Once
	stackType  reflect.Type // nil if they have none
	stackIndex int
)
