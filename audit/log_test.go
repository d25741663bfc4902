package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var (
	_ Sink = (*Log)(nil)
	_ Sink = (*Memory)(nil)
)

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := mustOpen(t, path)
	for i := range 3 {
		mustAppend(t, l, sample(i))
	}
	mustClose(t, l)
	l = mustOpen(t, path) // continues the chain
	mustAppend(t, l, sample(3))
	mustClose(t, l)

	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	s := mustVerify(t, path)
	if s.Records != 4 || !s.First.Equal(sample(0).Time) || !s.Last.Equal(sample(3).Time) {
		t.Errorf("summary %+v", s)
	}
	data := mustRead(t, path)
	lines := strings.Split(strings.TrimSuffix(data, "\n"), "\n")
	if want := digest([]byte(lines[3])); s.Head != want {
		t.Errorf("head %s, want the digest of the last line %s", s.Head, want)
	}

	m := NewMemory() // must agree with the file
	for i := range 4 {
		mustAppend(t, m, sample(i))
	}
	i := 0
	for r, err := range Scan(strings.NewReader(data)) {
		if err != nil || r != m.Records()[i] {
			t.Errorf("record %d: %+v, %v; memory has %+v", i, r, err, m.Records()[i])
		}
		i++
	}
	if i != 4 {
		t.Errorf("Scan yields %d records, want 4", i)
	}
}

func TestLogAfterClose(t *testing.T) {
	l := mustOpen(t, filepath.Join(t.TempDir(), "audit.log"))
	mustClose(t, l)
	if err := l.Append(t.Context(), sample(0)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	if err := l.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close after Close: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	l := mustOpen(t, path)
	mustAppend(t, l, sample(0))
	mustAppend(t, l, sample(1))
	mustClose(t, l)
	good := mustRead(t, path)

	tests := []struct{ name, data, want string }{
		{"torn", good + `{"seq":3,"ti`, fmt.Sprintf("line 3: no end: 12 bytes from byte %d", len(good))},
		{"torn first line", `{"seq"`, "line 1: no end: 6 bytes from byte 0"},
		{"only the end is missing", strings.TrimSuffix(good, "\n"), "line 2: no end"},
		{"last line changed", strings.Replace(good, `"target":"tool-1"`, `"target":"tool-2"`, 1), "line 2: hash does not match"},
		{"not a log", "hello\n", "line 1: no record"},
		{"zeros", good + strings.Repeat("\x00", 100) + "\n", "line 3: no record"},
		{"one endless line", strings.Repeat("x", 3*maxLine), "line 1: exceeds 65536 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.log")
			mustWrite(t, file, tt.data)
			_, err := Open(file)
			if !errors.Is(err, ErrChain) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open: %v; want %s", err, tt.want)
			}
			if mustRead(t, file) != tt.data {
				t.Error("Open changed the file")
			}
		})
	}
	if _, err := Open(filepath.Join(dir, "none", "audit.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open without a directory: %v", err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("Open of a directory succeeds")
	}
}

func TestRepair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := mustOpen(t, path)
	mustAppend(t, l, sample(0))
	good := mustRead(t, path)
	const torn = `{"seq":2,"time`
	mustWrite(t, path, good+torn)

	// A log that is open meets the torn line of another process's crash.
	var broken *ChainError
	if err := l.Append(t.Context(), sample(1)); !errors.As(err, &broken) || broken.Line != 2 {
		t.Fatalf("Append after a torn line: %v", err)
	}
	n, err := Repair(t.Context(), path, "operator:bo")
	if err != nil || n != int64(len(torn)) {
		t.Fatalf("Repair = %d, %v; want %d", n, err, len(torn))
	}
	mustAppend(t, l, sample(2))
	mustClose(t, l)
	if s := mustVerify(t, path); s.Records != 3 {
		t.Errorf("%d records, want 3", s.Records)
	}
	var actions []string
	for r, err := range Scan(strings.NewReader(mustRead(t, path))) {
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, r.Action)
		want := fmt.Sprintf("cut 14 bytes of line 2 from byte %d, sha256 %s", len(good), digest([]byte(torn)))
		if r.Action == "audit.repair" && (r.Actor != "operator:bo" || r.Why != want) {
			t.Errorf("repair record %+v; want why %s", r, want)
		}
	}
	if got := strings.Join(actions, " "); got != "call.allow audit.repair call.allow" {
		t.Errorf("actions %s", got)
	}

	before := mustRead(t, path)
	if n, err := Repair(t.Context(), path, "operator:bo"); n != 0 || err != nil || mustRead(t, path) != before {
		t.Errorf("Repair of a whole log = %d, %v", n, err)
	}
	mustWrite(t, path, strings.Replace(before, `"seq":3`, `"seq":4`, 1)+torn)
	before = mustRead(t, path)
	if _, err := Repair(t.Context(), path, "operator:bo"); !errors.As(err, &broken) || broken.Line != 3 || mustRead(t, path) != before {
		t.Errorf("Repair of a changed line: %v", err)
	}
}

func TestAppendNoticesOthers(t *testing.T) {
	tests := []struct {
		name string
		do   func(t *testing.T, path, data string)
		want string
	}{
		{"cut", func(t *testing.T, path, data string) {
			if err := os.Truncate(path, int64(len(data)/2)); err != nil {
				t.Fatal(err)
			}
		}, "was cut from"},
		{"removed", func(t *testing.T, path, _ string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "moved or replaced"},
		{"replaced", func(t *testing.T, path, data string) {
			mustWrite(t, path+".new", data)
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}, "moved or replaced"},
		{"foreign line", func(t *testing.T, path, data string) { mustWrite(t, path, data+"{}\n") }, "line 3: no record"},
		{"line again", func(t *testing.T, path, data string) {
			mustWrite(t, path, data+data[strings.Index(data, "\n")+1:])
		}, "line 3: seq 2: want 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			l := mustOpen(t, path)
			defer l.Close()
			mustAppend(t, l, sample(0))
			mustAppend(t, l, sample(1))
			tt.do(t, path, mustRead(t, path))
			for range 2 { // and stays refused
				if err := l.Append(t.Context(), sample(2)); !errors.Is(err, ErrChain) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Append: %v; want %s", err, tt.want)
				}
			}
		})
	}
}

func TestAppendWhenTheFileCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := mustOpen(t, path)
	defer l.Close()
	mustAppend(t, l, sample(0))
	before := mustRead(t, path)

	writable := l.file
	readonly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readonly.Close()
	l.file = readonly
	if err := l.Append(t.Context(), sample(1)); err == nil {
		t.Error("Append to a file that cannot be written succeeds")
	}
	l.file = writable
	if got := mustRead(t, path); got != before {
		t.Errorf("file changed to %q", got)
	}
	mustAppend(t, l, sample(1))
	if s := mustVerify(t, path); s.Records != 2 {
		t.Errorf("%d records, want 2", s.Records)
	}
}

// Many goroutines over two Logs of one file keep one chain, and no record is
// lost.
func TestConcurrentAppends(t *testing.T) {
	const goroutines, each = 8, 15
	path := filepath.Join(t.TempDir(), "audit.log")
	logs := []*Log{mustOpen(t, path), mustOpen(t, path)}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if err := logs[g%2].Append(t.Context(), Record{Action: "call.allow", Call: fmt.Sprintf("%d-%d", g, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, l := range logs {
		mustClose(t, l)
	}
	mustVerify(t, path)
	wantCalls(t, path, goroutines, each)
}

// Processes that append to one file at once keep one chain.
func TestProcessesAppend(t *testing.T) {
	const processes, each = 3, 20
	path := os.Getenv("AUDIT_TEST_PATH")
	if path != "" { // this is one of the processes
		l := mustOpen(t, path)
		for i := range each {
			mustAppend(t, l, Record{Action: "call.allow", Call: os.Getenv("AUDIT_TEST_NUMBER") + "-" + strconv.Itoa(i)})
		}
		mustClose(t, l)
		return
	}
	path = filepath.Join(t.TempDir(), "audit.log")
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesAppend$")
			cmd.Env = append(os.Environ(), "AUDIT_TEST_PATH="+path, "AUDIT_TEST_NUMBER="+strconv.Itoa(p))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %d: %v\n%s", p, err, out)
			}
		})
	}
	wg.Wait()
	mustVerify(t, path)
	wantCalls(t, path, processes, each)
}

// wantCalls checks that the log holds the calls 0-0, 0-1 and so on, each once and
// those of one writer in order.
func wantCalls(t *testing.T, path string, writers, each int) {
	t.Helper()
	next := map[string]int{}
	for r, err := range Scan(strings.NewReader(mustRead(t, path))) {
		if err != nil {
			t.Fatal(err)
		}
		writer, number, _ := strings.Cut(r.Call, "-")
		if number != strconv.Itoa(next[writer]) {
			t.Fatalf("call %s follows %s-%d", r.Call, writer, next[writer]-1)
		}
		next[writer]++
	}
	for w := range writers {
		if n := next[strconv.Itoa(w)]; n != each {
			t.Errorf("writer %d has %d records, want %d", w, n, each)
		}
	}
}

func TestAppendAndContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, other := mustOpen(t, path), mustOpen(t, path)
	defer l.Close()
	defer other.Close()
	why := errors.New("the run ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)

	if err := l.Append(ctx, sample(0)); err != nil {
		t.Errorf("Append with nothing to wait for: %v", err)
	}
	if err := lock(t.Context(), other.file); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(ctx, sample(1)); !errors.Is(err, why) {
		t.Errorf("Append to a locked file: %v", err)
	}
	unlock(other.file)
	l.turn <- struct{}{}
	if err := l.Append(ctx, sample(1)); !errors.Is(err, why) {
		t.Errorf("Append while another one runs: %v", err)
	}
	<-l.turn
	mustAppend(t, l, sample(1))
	if s := mustVerify(t, path); s.Records != 2 {
		t.Errorf("%d records, want 2", s.Records)
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(filepath.Join(b.TempDir(), "audit.log"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	r := sample(0)
	for b.Loop() {
		if err := l.Append(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	data := chainOf(1000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Verify(strings.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func mustOpen(t testing.TB, path string) *Log {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t testing.TB, s Sink, r Record) {
	t.Helper()
	if err := s.Append(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustVerify(t testing.TB, path string) Summary {
	t.Helper()
	s, err := Verify(strings.NewReader(mustRead(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustRead(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mustWrite(t testing.TB, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
