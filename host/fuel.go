package host

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A guest runs on a slice of fuel before it calls the host. A collection of garbage waits for the
// slices of all guests again and again, since it lets others run whenever it has swept a little: so
// slices take some hundredth of a millisecond, and one or two milliseconds if every instruction misses
// the processor's caches. Calls that end soon hold nobody up for long: the first slices are longer, since
// each costs a call of the host. To let others run costs more than the rest of that call, most of all where
// nobody else wants to, so slices of less than yieldAfter do it together. Only fuel decides where slices
// end: if time did, what a trapped guest is said to have used would not repeat.
const (
	sliceFuel      = 1 << 16
	firstSliceFuel = 1 << 17
	firstFuel      = 1 << 20 // of a call, in such slices

	yieldAfter = 10 * time.Microsecond
)

// fuel is what one frame knows of its guest's fuel. What is left of a slice is in the
// instance, see package meter.
type fuel struct {
	limit   int64
	granted int64         // in slices
	used    int64         // once it is over
	yielded time.Duration // when others were let run last, since the clock began
}

// installMeter makes the module that metered guests, and the module of their blocks, import from.
func installMeter(ctx context.Context, runtime wazero.Runtime) error {
	inCall := func(name string, run func(f *frame, stack []uint64)) api.GoModuleFunc {
		return func(ctx context.Context, _ api.Module, stack []uint64) {
			f, ok := ctx.Value(frameKey{}).(*frame)
			if !ok {
				panic(&abort{abi.GuestTrap, "metered code outside a call"})
			}
			defer f.catch(name)
			run(f, stack)
		}
	}
	b := runtime.NewHostModuleBuilder(meter.Prefix).NewFunctionBuilder().
		WithGoModuleFunction(inCall(meter.Refill, func(f *frame, _ []uint64) { f.refill() }), nil, nil).Export(meter.Refill)
	for _, name := range meter.Accessors() {
		fn, _ := lookup(abi.ImportExtism, name)
		params, results := fn.types()
		b = b.NewFunctionBuilder().WithGoModuleFunction(inCall(name, func(f *frame, s []uint64) {
			f.instance.fuel.Set(f.instance.fuel.Get() - meter.HostCall)
			fn.run(f, nil, s)
		}), params, results).Export(name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// fill begins the count with a limit, and grants the first slice.
func (f *frame) fill(limit int64) {
	f.fuel = fuel{limit: limit, granted: min(firstSliceFuel, limit)}
	f.instance.fuel.Set(uint64(f.fuel.granted))
}

// refill ends the call if the guest is too deep, has used its fuel or has no time
// left; else it grants a slice.
func (f *frame) refill() {
	if int64(f.instance.depth.Get()) < 0 {
		panic(&abort{abi.GuestStack, fmt.Sprintf("calls within calls: more frames than %d", f.limits.Depth)})
	}
	left := int64(f.instance.fuel.Get())
	if left >= 0 {
		// Within a long instruction. Others do not take turns there: guests that all fill their
		// memory would all have it at once.
		f.checkTime()
		return
	}
	// The garbage collector and others need not wait until the scheduler takes the
	// processor away.
	elapsed := time.Since(f.started)
	if elapsed-f.fuel.yielded >= yieldAfter {
		runtime.Gosched()
		elapsed = time.Since(f.started)
		f.fuel.yielded = elapsed
	}
	if elapsed >= f.bound || f.parent.Err() != nil {
		panic(f.timeUp())
	}
	used := f.fuel.granted - left
	if used > f.fuel.limit {
		panic(&abort{abi.GuestFuel, fmt.Sprintf("limit %d", f.fuel.limit)})
	}
	slice := int64(sliceFuel)
	if used < firstFuel {
		slice = firstSliceFuel
	}
	slice = min(slice, f.fuel.limit-used)
	f.fuel.granted = used + slice
	f.instance.fuel.Set(uint64(slice))
}

// spent returns the fuel that was used so far.
func (f *frame) spent() int64 {
	if f.instance == nil {
		return 0
	}
	return f.fuel.granted - int64(f.instance.fuel.Get())
}

// charge counts what a host function does with n bytes, which takes long enough to
// matter, as the guest's own instructions for lengths are charged.
func (f *frame) charge(n uint64) {
	left := int64(f.instance.fuel.Get()) - int64(n>>3)
	f.instance.fuel.Set(uint64(left))
	if left < 0 {
		f.refill()
	}
}
