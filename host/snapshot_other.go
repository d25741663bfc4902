//go:build !linux

package host

import "errors"

// A region is room for one linear memory.
type region struct {
	size int64 // the most
	b    []byte
}

func reserve(size int64) (*region, error) { return &region{size: size}, nil }

// bytes returns the first n bytes of the region. What lies behind them is zero until it is
// asked for.
func (r *region) bytes(n int64) []byte {
	if n > int64(cap(r.b)) {
		// A quarter more than asked, so that growing page by page does not copy
		// everything for each page.
		room := min(n+n/4, r.size)
		if len(r.b) == 0 {
			room = n
		}
		b := make([]byte, len(r.b), room)
		copy(b, r.b)
		r.b = b
	}
	r.b = r.b[:n]
	return r.b
}

func (r *region) free() { r.b = nil }

// madvise makes part of a region zero.
func madvise(b []byte) error {
	clear(b)
	return nil
}

// A snapshot needs Linux.
type snapshot struct {
	size int
	data []byte
}

var errNoSnapshot = errors.New("not Linux")

func takeSnapshot([]byte) (*snapshot, error) { return nil, errNoSnapshot }

func (s *snapshot) close() {}

func (s *snapshot) put(*region) error { return errNoSnapshot }

func (s *snapshot) restore(*region, int64, *pageMap, bool) (int64, error) { return 0, errNoSnapshot }

// A pageMap needs Linux.
type pageMap struct{}

func openPageMap() (*pageMap, error) { return nil, errNoSnapshot }

func (p *pageMap) close() error { return nil }
