package hostile

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// A level is what a process holds. Fields that cannot be told here are -1.
type level struct {
	goroutines  int
	descriptors int
	heap        int64
	resident    int64
}

// What the process may keep, beside a module that it accepted. What was seen to be kept, of 314 cases on a busy machine, is 0.6 MiB
// of heap and 2.8 MiB resident, both after many calls at once.
const (
	heapSlack       = 2 << 20
	residentSlack   = 6 << 20 // images, with the instances that wait for a call, and what the allocator has in hand
	descriptorSlack = 4       // images of instances of the module that is tried
)

// What a module that was accepted may take, as long as the engine is there, in times its bytes and in bytes: its native code, and what is
// known of its functions and segments, of which each may have three bytes.
const (
	timesModule  = 40
	mostOfModule = 8 << 20
)

// with returns the level that a process may be at which was at this one and has accepted a module of so many bytes.
func (l level) with(module int) level {
	kept := min(int64(module)*timesModule, mostOfModule)
	l.descriptors += descriptorSlack
	l.heap += heapSlack + kept
	l.resident += residentSlack + kept
	return l
}

// takeLevel measures after a collection.
func takeLevel() level {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return level{runtime.NumGoroutine(), descriptors(), int64(m.HeapAlloc), residentSelf()}
}

// back waits up to two seconds for the process to be back at a level, but for what
// it may keep of a module of so many bytes, and says what is not.
func (l level) back(ctx context.Context, module int) string {
	const settle = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	most := l.with(module)
	for pause := time.Millisecond; ; pause *= 2 {
		now := takeLevel()
		switch {
		case now.goroutines > most.goroutines:
		case now.descriptors > most.descriptors:
		case now.heap > most.heap:
		case now.resident > most.resident && l.resident >= 0:
		default:
			return ""
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return differ("goroutines", now.goroutines, most.goroutines) + differ("descriptors", now.descriptors, most.descriptors) +
				differ("heap bytes", now.heap, most.heap) + differ("resident bytes", now.resident, most.resident)
		}
	}
}

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}
