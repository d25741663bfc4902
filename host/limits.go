package host

import (
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Limits bounds one call. A zero field takes the default of the call's kind;
// there is no spelling for "unlimited". Defaults are for tools, with those of
// hooks and guards in brackets where they differ. A negative field counts as the
// smallest positive value.
type Limits struct {
	MemoryBytes int64         // linear memory and blocks together; default 64 MiB (16 MiB)
	Wall        time.Duration // from the moment an initialised instance is given; default 5s (50ms)
	Startup     time.Duration // making an instance: instantiation, start function, _initialize and warm_up; default Wall if that is given, else 5s
	// These have fuel of their own, as much as the call; those of hooks and guards have
	// as much as a tool.
	Fuel         int64 // guest work as package host/meter counts it, a count that repeats; default 2e9 (2e7)
	Depth        int   // frames of guest functions that call each other, large ones count more; default 10000
	InputBytes   int64 // the input; default 4 MiB
	OutputBytes  int64 // the output; default 1 MiB
	HostCalls    int   // calls of host functions, accessors of memory aside; default 1000
	StoredBytes  int64 // values, artifacts and chunks handed to state, kv, artifacts and emit; default 16 MiB
	LogBytes     int64 // log lines, standard output and standard error together; default 64 KiB
	HTTPRequests int   // requests sent, every redirect counts; default 10
	HTTPBytes    int64 // body of one request, and of one response once decompressed; default 2 MiB
	VarBytes     int64 // values of Extism's variables together; default 1 MiB
}

var (
	toolLimits = Limits{
		MemoryBytes: 64 << 20, Wall: 5 * time.Second, Startup: 5 * time.Second, Fuel: 2e9, Depth: 10_000,
		InputBytes: 4 << 20, OutputBytes: 1 << 20,
		HostCalls: 1000, StoredBytes: 16 << 20, LogBytes: 64 << 10, HTTPRequests: 10, HTTPBytes: 2 << 20, VarBytes: 1 << 20,
	}
	guardLimits = Limits{MemoryBytes: 16 << 20, Wall: 50 * time.Millisecond, Startup: 5 * time.Second, Fuel: 2e7}.Or(toolLimits)
)

// Asked returns what a manifest asks for. A field that it does not name is zero.
func Asked(l abi.Limits) Limits {
	// More milliseconds than a duration can hold are more than anybody gets.
	wall := time.Duration(min(l.WallMS, time.Hour.Milliseconds())) * time.Millisecond
	return Limits{MemoryBytes: l.MemoryBytes, Wall: wall, Fuel: l.Fuel, HostCalls: l.HostCalls, OutputBytes: l.OutputBytes,
		HTTPBytes: l.HTTPBytes, VarBytes: l.VarBytes}
}

// DefaultLimits returns the limits of a call of that kind, with no field zero.
func DefaultLimits(kind abi.Kind) Limits {
	if kind == abi.KindTool {
		return toolLimits
	}
	return guardLimits
}

// Narrow returns l, lowered to m where m is lower. A zero field of m lowers
// nothing; a zero field of l stands for a default that is not known here, so m
// takes its place: apply the defaults of the kind first where that matters.
func (l Limits) Narrow(m Limits) Limits {
	return Limits{
		MemoryBytes:  lower(l.MemoryBytes, m.MemoryBytes),
		Wall:         lower(l.Wall, m.Wall),
		Startup:      lower(l.Startup, m.Startup),
		Fuel:         lower(l.Fuel, m.Fuel),
		Depth:        lower(l.Depth, m.Depth),
		InputBytes:   lower(l.InputBytes, m.InputBytes),
		OutputBytes:  lower(l.OutputBytes, m.OutputBytes),
		HostCalls:    lower(l.HostCalls, m.HostCalls),
		StoredBytes:  lower(l.StoredBytes, m.StoredBytes),
		LogBytes:     lower(l.LogBytes, m.LogBytes),
		HTTPRequests: lower(l.HTTPRequests, m.HTTPRequests),
		HTTPBytes:    lower(l.HTTPBytes, m.HTTPBytes),
		VarBytes:     lower(l.VarBytes, m.VarBytes),
	}
}

func lower[T ~int | ~int64](a, b T) T {
	switch {
	case b == 0:
		return a
	case a == 0:
		return b
	}
	return min(a, b)
}

// Or returns l with the fields of m where l has zero, but that Startup is Wall where only
// that is given.
func (l Limits) Or(m Limits) Limits {
	return Limits{
		MemoryBytes:  either(l.MemoryBytes, m.MemoryBytes),
		Wall:         either(l.Wall, m.Wall),
		Startup:      either(l.Startup, either(l.Wall, m.Startup)),
		Fuel:         either(l.Fuel, m.Fuel),
		Depth:        either(l.Depth, m.Depth),
		InputBytes:   either(l.InputBytes, m.InputBytes),
		OutputBytes:  either(l.OutputBytes, m.OutputBytes),
		HostCalls:    either(l.HostCalls, m.HostCalls),
		StoredBytes:  either(l.StoredBytes, m.StoredBytes),
		LogBytes:     either(l.LogBytes, m.LogBytes),
		HTTPRequests: either(l.HTTPRequests, m.HTTPRequests),
		HTTPBytes:    either(l.HTTPBytes, m.HTTPBytes),
		VarBytes:     either(l.VarBytes, m.VarBytes),
	}
}

func either[T ~int | ~int64](a, b T) T {
	switch {
	case a == 0:
		return b
	case a < 0:
		return 1
	}
	return a
}
