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

// What the process may keep.
const (
	heapSlack       = 16 << 20 // such as compiled code
	residentSlack   = 64 << 20 // and that code itself, and an image with the instances that wait
	descriptorSlack = 4        // images of instances of the module that is tried
)

// takeLevel measures after a collection.
func takeLevel() level {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return level{runtime.NumGoroutine(), descriptors(), int64(m.HeapAlloc), residentSelf()}
}

// back waits up to two seconds for the process to be back at a level and says what
// is not.
func (l level) back(ctx context.Context) string {
	const settle = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	for pause := time.Millisecond; ; pause *= 2 {
		now := takeLevel()
		switch {
		case now.goroutines > l.goroutines:
		case now.descriptors > l.descriptors+descriptorSlack:
		case now.heap > l.heap+heapSlack:
		case now.resident > l.resident+residentSlack && l.resident >= 0:
		default:
			return ""
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return differ("goroutines", now.goroutines, l.goroutines) + differ("descriptors", now.descriptors, l.descriptors+descriptorSlack) +
				differ("heap bytes", now.heap, l.heap+heapSlack) + differ("resident bytes", now.resident, l.resident+residentSlack)
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
