package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is address space for one linear memory. It never moves, and what was not
// touched takes no memory. It belongs to one instance.
type region struct {
	base unsafe.Pointer
	size uintptr
}

// reserve returns a region of zeros. Its maker calls free.
func reserve(size int64) (*region, error) {
	r := &region{size: uintptr(size)}
	if size == 0 {
		return r, nil
	}
	var err error
	r.base, err = unix.MmapPtr(-1, 0, nil, r.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("address space of %d bytes: %w", size, err)
	}
	return r, nil
}

// bytes returns the first n bytes of the region.
func (r *region) bytes(n int64) []byte { return unsafe.Slice((*byte)(r.base), r.size)[:n] }

func (r *region) free() {
	if r.base != nil {
		unix.MunmapPtr(r.base, r.size) // fails for bad addresses only
		r.base, r.size = nil, 0
	}
}

// A snapshot is the contents of a memory, sealed: nothing can change them, not even
// this process.
type snapshot struct {
	fd   int
	size int
	data []byte // mapped for reading
	zero []bool // pages that are; to read them would make them take memory
}

// takeSnapshot copies memory, whose length is a multiple of a page's.
func takeSnapshot(memory []byte) (*snapshot, error) {
	s := &snapshot{fd: -1, size: len(memory)}
	if s.size == 0 {
		return s, nil
	}
	fail := func(what string, err error) (*snapshot, error) {
		s.close()
		return nil, fmt.Errorf("snapshot of %d bytes: %s: %w", s.size, what, err)
	}
	var err error
	if s.fd, err = unix.MemfdCreate("sandboxd-snapshot", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return fail("memfd_create", err)
	}
	if err := unix.Ftruncate(s.fd, int64(s.size)); err != nil {
		return fail("ftruncate", err)
	}
	s.zero = make([]bool, s.size/pageSize)
	for at := 0; at < s.size; at += pageSize {
		page := memory[at : at+pageSize]
		if bytes.Equal(page, zeros) {
			s.zero[at/pageSize] = true // a hole
			continue
		}
		if n, err := unix.Pwrite(s.fd, page, int64(at)); err != nil || n != pageSize {
			return fail("write", errors.Join(err, fmt.Errorf("%d bytes at %d", n, at)))
		}
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fail("seal", err)
	}
	if s.data, err = unix.Mmap(s.fd, 0, s.size, unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
		return fail("mmap", err)
	}
	return s, nil
}

func (s *snapshot) close() {
	if s.data != nil {
		unix.Munmap(s.data) // fails for bad addresses only
		s.data = nil
	}
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

// put makes the beginning of a region a copy of the snapshot, of which pages are
// copied when they are written to.
func (s *snapshot) put(r *region) error {
	if s.size == 0 {
		return nil
	}
	_, err := unix.MmapPtr(s.fd, 0, r.base, uintptr(s.size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("snapshot of %d bytes: mmap: %w", s.size, err)
	}
	return nil
}

// maxKeptPages is how many pages of its own a region keeps from call to call. Writing to
// them again costs nothing; giving them back costs less than copying more.
const maxKeptPages = 256

// restore gives a region, of which size bytes were used, the contents
// that put gave it, and zeros behind them. It looks only at pages that were written to, ever
// since they were last given back, and returns the bytes that the region keeps for itself.
// With sweep, pages that have their contents already are given back.
func (s *snapshot) restore(r *region, size int64, pages *pageMap, sweep bool) (kept int64, err error) {
	buf := pageMapBuffers.Get().(*[pageMapChunk * 8]byte)
	defer pageMapBuffers.Put(buf)
	memory := r.bytes(size)
	first := int64(uintptr(r.base)) / int64(pageSize)
	for at := 0; at < len(memory); at += pageMapChunk * pageSize {
		n := min(pageMapChunk, (len(memory)-at)/pageSize)
		if err := pages.read(buf[:n*8], first+int64(at/pageSize)); err != nil {
			return 0, err
		}
		for i := range n {
			if !written(binary.LittleEndian.Uint64(buf[i*8:])) {
				continue
			}
			if kept += int64(pageSize); kept > maxKeptPages*int64(pageSize) {
				return 0, madvise(memory)
			}
			from := at + i*pageSize
			page := memory[from:][:pageSize]
			if from >= s.size {
				clear(page)
				continue
			}
			want := zeros
			if !s.zero[from/pageSize] {
				want = s.data[from:][:pageSize]
			}
			switch {
			case sweep && bytes.Equal(page, want): // is given back
			case s.zero[from/pageSize]:
				clear(page)
				continue
			default:
				copy(page, want)
				continue
			}
			if err := madvise(page); err != nil {
				return 0, err
			}
			kept -= int64(pageSize)
		}
	}
	return kept, nil
}

// madvise gives back the pages that are a region's own: they are again what was put there, or zeros.
func madvise(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("madvise of %d bytes: %w", len(b), err)
	}
	return nil
}

// A pageMap is the kernel's account of the pages of this process. It has 64 bits for each:
// see https://docs.kernel.org/admin-guide/mm/pagemap.html. It is safe for concurrent use.
type pageMap struct {
	file *os.File
	fd   int
}

const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61

	pageMapChunk = 1024 // pages looked at in one read
)

// written reports whether the page of a private mapping of a file was written to, by its
// entry. One that was never touched is nowhere, one that was only read is present and the
// file's. Other bits say other things: of a kernel that counts what changed since it was last
// asked, pages that were never touched have one.
func written(entry uint64) bool {
	return entry&(pagePresent|pageSwapped) != 0 && entry&(pagePresent|pageOfFile) != pagePresent|pageOfFile
}

var (
	pageSize       = os.Getpagesize()
	zeros          = make([]byte, pageSize)
	pageMapBuffers = sync.Pool{New: func() any { return new([pageMapChunk * 8]byte) }}
)

// openPageMap opens the account, or says why instances cannot be set back on this system: it
// tries. Its caller closes it.
func openPageMap() (*pageMap, error) {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, err
	}
	p := &pageMap{file, int(file.Fd())}
	if err := p.try(); err != nil {
		file.Close()
		return nil, err
	}
	return p, nil
}

func (p *pageMap) close() error { return p.file.Close() }

// read reads the entries of the pages from first on. It takes a microsecond, so the scheduler
// is not told.
func (p *pageMap) read(b []byte, first int64) error {
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(p.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(first*8), 0, 0)
	switch {
	case errno != 0:
		return fmt.Errorf("/proc/self/pagemap: %d bytes: %w", len(b), errno)
	case int(n) != len(b):
		return fmt.Errorf("/proc/self/pagemap: %d bytes of %d: %w", n, len(b), io.ErrUnexpectedEOF)
	}
	return nil
}

// try sets a region back twice.
func (p *pageMap) try() error {
	size := 4 * pageSize
	r, err := reserve(int64(size) * 2)
	if err != nil {
		return err
	}
	defer r.free()
	memory := r.bytes(int64(size))
	memory[pageSize] = 1
	s, err := takeSnapshot(memory)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.put(r); err != nil {
		return err
	}
	for range 2 {
		memory[pageSize], memory[size-1] = 2, memory[0]+3 // one page is read only, one not touched
		kept, err := s.restore(r, int64(size), p, false)
		if err != nil {
			return err
		}
		if kept != 2*int64(pageSize) {
			return fmt.Errorf("/proc/self/pagemap: %d bytes were found to be written, want those of 2 pages", kept)
		}
		if !bytes.Equal(memory[:2*pageSize], s.data[:2*pageSize]) || !bytes.Equal(memory[3*pageSize:], s.data[3*pageSize:]) {
			return errors.New("a page that was written to was not found")
		}
	}
	return nil
}
