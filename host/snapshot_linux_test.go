package host

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSnapshotSealed: nothing can change a snapshot, and a region set back to one is equal to
// it, however many pages were written to.
func TestSnapshotSealed(t *testing.T) {
	pages, err := openPageMap()
	if err != nil {
		t.Fatal(err)
	}
	defer pages.close()
	const size = 6 << 20
	r, err := reserve(size + wasmPage)
	if err != nil {
		t.Fatal(err)
	}
	defer r.free()
	memory := r.bytes(size)
	for i := range size / 2 {
		memory[i] = byte(i >> 8)
	}
	s, err := takeSnapshot(memory)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.put(r); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 7, maxKeptPages, maxKeptPages + 1, size / pageSize} {
		for i := range n {
			memory[i*pageSize+i%pageSize]++
		}
		kept, err := s.restore(r, size, pages, false)
		if err != nil {
			t.Fatal(err)
		}
		if string(memory) != string(s.data) {
			t.Errorf("%d pages written to: the region is not as the snapshot", n)
		}
		if most := int64(maxKeptPages * pageSize); kept > most || n <= maxKeptPages && kept < int64(n*pageSize) {
			t.Errorf("%d pages written to: %d bytes kept, at most %d", n, kept, most)
		}
	}
	for i := range 9 {
		memory[i*pageSize]++
	}
	for _, c := range []struct {
		written int // again, of those 9
		sweep   bool
		kept    int64
	}{{9, false, 9}, {4, false, 9}, {4, true, 4}, {4, false, 4}, {0, true, 0}} {
		for i := range c.written {
			memory[i*pageSize]++
		}
		kept, err := s.restore(r, size, pages, c.sweep)
		if err != nil || kept != c.kept*int64(pageSize) || string(memory) != string(s.data) {
			t.Errorf("sweep %v with %d pages written to: %d bytes kept, error %v; want %d pages and the snapshot's contents", c.sweep, c.written, kept, err, c.kept)
		}
	}
	if _, err := unix.Pwrite(s.fd, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing to a snapshot: %v, want EPERM", err)
	}
	if err := unix.Ftruncate(s.fd, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("cutting a snapshot: %v, want EPERM", err)
	}
}

// TestNoPageMap: an account of pages that cannot be read or trusted is found out.
func TestNoPageMap(t *testing.T) {
	empty, err := os.Create(t.TempDir() + "/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if err := (&pageMap{empty, int(empty.Fd())}).try(); err == nil {
		t.Error("an empty account was taken")
	}
	zeros, err := os.Open("/dev/zero") // says that nothing was ever written to
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	if err := (&pageMap{zeros, int(zeros.Fd())}).try(); err == nil {
		t.Error("an account of zeros was taken")
	}
}

// TestWritten goes by the kernel's documentation of the bits.
func TestWritten(t *testing.T) {
	const softDirty, exclusive, protected = 1 << 55, 1 << 56, 1 << 57
	for _, c := range []struct {
		name  string
		entry uint64
		want  bool
	}{
		{"never touched", 0, false},
		{"never touched, of a kernel that counts changes", softDirty, false},
		{"read", pagePresent | pageOfFile, false},
		{"read, of a kernel that counts changes", pagePresent | pageOfFile | softDirty | 0x1234, false},
		{"read, and nobody else's", pagePresent | pageOfFile | exclusive, false},
		{"written to", pagePresent | exclusive | 0x1234, true},
		{"written to, of a kernel that counts changes", pagePresent | softDirty | exclusive, true},
		{"written to, and watched", pagePresent | protected, true},
		{"written to, and swapped out", pageSwapped | softDirty | 0x1234, true},
	} {
		if got := written(c.entry); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
