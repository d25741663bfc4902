package hostile

import (
	"context"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestLevelSeesWhatIsKept: whatever a case leaves behind is named.
func TestLevelSeesWhatIsKept(t *testing.T) {
	soon, cancel := context.WithCancel(t.Context())
	cancel() // it looks once
	before := takeLevel()
	if d := before.back(soon, 0); d != "" {
		t.Errorf("nothing was kept: %s", d)
	}
	for name, keep := range map[string]func() (release func()){
		"goroutines": func() func() {
			hold, done := make(chan struct{}), make(chan struct{})
			go func() { <-hold; close(done) }()
			return func() { close(hold); <-done }
		},
		"descriptors": func() func() {
			var all []int
			for range descriptorSlack + 2 {
				fd, err := syscall.Dup(0)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, fd)
			}
			return func() {
				for _, fd := range all {
					syscall.Close(fd)
				}
			}
		},
		"heap bytes": func() func() {
			b := make([]byte, heapSlack+1<<20)
			return func() { runtime.KeepAlive(b) }
		},
		"resident bytes": func() func() { // which the heap knows nothing of, as memories of guests
			b, err := syscall.Mmap(-1, 0, residentSlack+4<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			return func() { syscall.Munmap(b) }
		},
	} {
		before := takeLevel()
		release := keep()
		if d := before.back(soon, 0); !strings.HasPrefix(d, name) || strings.Count(d, ";") != 1 {
			t.Errorf("%s were kept: %q", name, d)
		}
		release()
	}
}
