package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// sample is a record with every member that a caller sets.
func sample(i int) Record {
	return Record{
		Time: time.Date(2026, 3, 1, 9, 0, i, 1, time.UTC), Tenant: "acme", Actor: "user:ana", Action: "call.allow", Target: fmt.Sprintf("tool-%d", i),
		Module: "sha256:5d0c8e77", Call: "call-1", Session: "demo", Run: "run-1", Capability: "http GET api.weather.example/v1/*", Decision: "allow",
		Code: "ok", ArgsSHA256: strings.Repeat("ab", 32), Why: "guard amounts: below <1000>",
	}
}

// chainOf returns a log of n samples.
func chainOf(n int) string {
	var b strings.Builder
	at := start()
	for i := range n {
		_, line, next, err := at.add(sample(i), nil)
		if err != nil {
			panic(err)
		}
		b.Write(append(line, '\n'))
		at = next
	}
	return b.String()
}

func TestLineGolden(t *testing.T) {
	const want = `{"seq":1,"time":"2026-03-01T09:00:00.000000001Z","tenant":"acme","actor":"user:ana","action":"call.allow","target":"tool-0","module":"sha256:5d0c8e77","call":"call-1","session":"demo","run":"run-1","capability":"http GET api.weather.example/v1/*","decision":"allow","code":"ok","args_sha256":"abababababababababababababababababababababababababababababababab","why":"guard amounts: below \u003c1000\u003e","prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"HASH"}` + "\n"
	got := chainOf(1)
	hash := digest([]byte(strings.Replace(strings.TrimSuffix(want, "\n"), `,"hash":"HASH"`, "", 1)))
	if w := strings.Replace(want, "HASH", hash, 1); got != w {
		t.Errorf("line:\n got %s\nwant %s", got, w)
	}
	if s, err := Verify(strings.NewReader(got)); err != nil || s.Head != digest([]byte(strings.TrimSuffix(got, "\n"))) {
		t.Errorf("Verify = %+v, %v", s, err)
	}
}

func TestVerifyEmpty(t *testing.T) {
	if s, err := Verify(strings.NewReader("")); err != nil || s != (Summary{Head: Genesis}) {
		t.Errorf("Verify = %+v, %v", s, err)
	}
}

// Every member of a line that is changed is noticed at that line, and at the next
// one if the changed line was given a hash that fits.
func TestVerifyNamesTheChangedLine(t *testing.T) {
	lines := strings.SplitAfter(chainOf(5), "\n")[:5]
	const at = 2 // the third line
	var r Record
	if err := json.Unmarshal([]byte(lines[at]), &r); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[Record]().NumField() {
		name := reflect.TypeFor[Record]().Field(i).Name
		changed := r
		switch f := reflect.ValueOf(&changed).Elem().Field(i); v := f.Interface().(type) {
		case uint64:
			f.SetUint(v + 1)
		case time.Time:
			f.Set(reflect.ValueOf(v.Add(time.Nanosecond)))
		case string:
			f.SetString("0" + v[1:])
			if v[0] == '0' {
				f.SetString("1" + v[1:])
			}
		default:
			t.Fatalf("%s has type %T", name, v)
		}
		line, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		wantBroken(t, name+" changed", replace(lines, at, string(line)+"\n"), at+1)
		if name == "Hash" {
			continue
		}
		if line, _, err = changed.seal(nil); err != nil {
			t.Fatal(err)
		}
		want := at + 2
		if name == "Seq" || name == "Prev" {
			want = at + 1
		}
		wantBroken(t, name+" changed and sealed", replace(lines, at, string(line)+"\n"), want)
	}
}

func TestVerifyNamesTheBrokenLine(t *testing.T) {
	log := chainOf(5)
	lines := strings.SplitAfter(log, "\n")[:5]
	unsealed := func(change func(string) string) []string { return replace(lines, 2, change(lines[2])) }
	tests := []struct {
		name  string
		lines []string
		line  int
	}{
		{"first line removed", lines[1:], 1},
		{"line removed", slices.Concat(lines[:2], lines[3:]), 3},
		{"line twice", slices.Insert(slices.Clone(lines), 2, lines[1]), 3},
		{"lines swapped", []string{lines[0], lines[2], lines[1], lines[3], lines[4]}, 2},
		{"foreign line", slices.Insert(slices.Clone(lines), 2, "{}\n"), 3},
		{"first line of another log", slices.Insert(slices.Clone(lines), 0, lines[0]), 2},
		{"empty line", slices.Insert(slices.Clone(lines), 4, "\n"), 5},
		{"empty line at the end", append(slices.Clone(lines), "\n"), 6},
		{"no end", replace(lines, 4, strings.TrimSuffix(lines[4], "\n")), 5},
		{"half a line", replace(lines, 4, lines[4][:50]), 5},
		{"carriage return", unsealed(func(s string) string { return strings.TrimSuffix(s, "\n") + "\r\n" }), 3},
		{"blank", unsealed(func(s string) string { return " " + s }), 3},
		{"members swapped", unsealed(func(s string) string {
			return strings.Replace(s, `"call":"call-1","session":"demo"`, `"session":"demo","call":"call-1"`, 1)
		}), 3},
		{"member twice", unsealed(func(s string) string { return strings.Replace(s, `"call":`, `"call":"x","call":`, 1) }), 3},
		{"member in upper case", unsealed(func(s string) string { return strings.Replace(s, `"call":`, `"CALL":`, 1) }), 3},
		{"unknown member", unsealed(func(s string) string { return strings.Replace(s, `"call":`, `"args":"x","call":`, 1) }), 3},
		{"unescaped", unsealed(func(s string) string { return strings.Replace(s, `\u003c`, "<", 1) }), 3},
		{"other zone", unsealed(func(s string) string { return strings.Replace(s, "01Z", "01+00:00", 1) }), 3},
		{"joined lines", unsealed(func(s string) string { return strings.TrimSuffix(s, "\n") }), 3},
		{"too long", unsealed(func(s string) string { return strings.Repeat("x", maxLine+1) + s }), 3},
		{"null", unsealed(func(string) string { return "null\n" }), 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantBroken(t, tt.name, tt.lines, tt.line) })
	}
	// What the chain alone cannot show, and the head does.
	whole, err := Verify(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if cut, err := Verify(strings.NewReader(strings.Join(lines[:4], ""))); err != nil || cut.Head == whole.Head {
		t.Errorf("a log without its last line: %+v, %v", cut, err)
	}
}

// A line beyond the bounds of texts is refused even if it is sealed.
func TestVerifyBounds(t *testing.T) {
	r := sample(0)
	r.Seq, r.Prev, r.Why = 1, Genesis, strings.Repeat("x", MaxText+1)
	line, _, err := r.seal(nil)
	if err != nil {
		t.Fatal(err)
	}
	wantBroken(t, "long why", []string{string(line) + "\n"}, 1)
}

func TestVerifyReadError(t *testing.T) {
	why := errors.New("disk gone")
	s, err := Verify(&failing{strings.NewReader(chainOf(2)), why})
	if !errors.Is(err, why) || errors.Is(err, ErrChain) || s.Records != 2 {
		t.Errorf("Verify = %+v, %v", s, err)
	}
}

type failing struct {
	*strings.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.Len() == 0 {
		return 0, f.err
	}
	return f.Reader.Read(p)
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("é", MaxText)
	r := Record{Action: "call.allow"}
	for i := range reflect.TypeFor[Record]().NumField() {
		if f := reflect.ValueOf(&r).Elem().Field(i); f.Kind() == reflect.String {
			f.SetString("\x00" + long)
		}
	}
	m := NewMemory()
	mustAppend(t, m, r)
	got := m.Records()[0]
	line, _, err := (&got).seal(nil)
	if err != nil || len(line) > maxLine {
		t.Fatalf("line of %d bytes, %v", len(line), err)
	}
	if r, what := decode(line); what != "" || r != got {
		t.Errorf("decode: %s", what)
	}
	for i := range reflect.TypeFor[Record]().NumField() {
		f, name := reflect.ValueOf(got).Field(i), reflect.TypeFor[Record]().Field(i).Name
		if f.Kind() != reflect.String || name == "Prev" || name == "Hash" {
			continue
		}
		limit := MaxID
		if name == "Target" || name == "Capability" || name == "Why" {
			limit = MaxText
		}
		if s := f.String(); len(s) > limit || len(s) < limit-4 || !strings.HasSuffix(s, Cut) || !utf8.ValidString(s) {
			t.Errorf("%s has %d bytes and ends in %q; want at most %d", name, len(s), s[max(0, len(s)-12):], limit)
		}
	}
}

func TestCut(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", ""},
		{"fits", strings.Repeat("x", 20), strings.Repeat("x", 20)},
		{"cut", strings.Repeat("x", 21), strings.Repeat("x", 12) + Cut},
		{"cut between characters", "x" + strings.Repeat("é", 20), "x" + strings.Repeat("é", 5) + Cut},
		{"bad bytes", "a\xffb", "a\ufffdb"},
		{"bad bytes that grow", strings.Repeat("\xffa", 10), strings.Repeat("\ufffda", 3) + Cut},
		{"bad bytes that shrink", "a" + strings.Repeat("\xff", 40), "a\ufffd" + Cut},
		{"controls stay", "a\n\x00", "a\n\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cut(tt.in, 20); got != tt.want || cut(got, 20) != got {
				t.Errorf("cut(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestAppendErrors(t *testing.T) {
	l := mustOpen(t, t.TempDir()+"/audit.log")
	defer l.Close()
	for _, s := range []Sink{NewMemory(), l} {
		if err := s.Append(t.Context(), Record{Why: "x"}); err == nil {
			t.Errorf("%T takes a record without an action", s)
		}
		if err := s.Append(t.Context(), Record{Action: "x", Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
			t.Errorf("%T takes the year 10000", s)
		}
		before := time.Now()
		if err := s.Append(t.Context(), Record{Action: "x", Seq: 7, Prev: "x", Hash: "y"}); err != nil {
			t.Errorf("%T: %v", s, err)
		}
		if m, ok := s.(*Memory); ok {
			if r := m.Records()[0]; r.Seq != 1 || r.Prev != Genesis || len(r.Hash) != 64 || r.Time.Before(before.Round(0)) {
				t.Errorf("record %+v", r)
			}
		}
	}
}

// Verify never panics, and no change of a log verifies with the same head.
func FuzzVerify(f *testing.F) {
	log := chainOf(4)
	whole, err := Verify(strings.NewReader(log))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(10), uint16(1), "x", "")
	f.Add(uint16(0), uint16(0), "\n", "{}\n")
	f.Add(uint16(500), uint16(700), "", log)
	f.Add(uint16(0), uint16(0), log, log+log)
	f.Add(uint16(3000), uint16(0), " ", strings.SplitAfter(log, "\n")[0])
	f.Fuzz(func(t *testing.T, from, count uint16, put, raw string) {
		start := int(from) % (len(log) + 1)
		end := min(start+int(count), len(log))
		for _, data := range []string{log[:start] + put + log[end:], raw} {
			s, err := Verify(strings.NewReader(data))
			if data == log {
				if err != nil || s != whole {
					t.Errorf("the log itself: %+v, %v", s, err)
				}
				continue
			}
			if err == nil && s.Head == whole.Head {
				t.Errorf("a changed log verifies with the same head: %q", data)
			}
			if err != nil && !errors.Is(err, ErrChain) {
				t.Errorf("error %T %v", err, err)
			}
		}
	})
}

func replace(lines []string, at int, line string) []string {
	lines = slices.Clone(lines)
	lines[at] = line
	return lines
}

func wantBroken(t *testing.T, name string, lines []string, line int) {
	t.Helper()
	s, err := Verify(strings.NewReader(strings.Join(lines, "")))
	broken, ok := errors.AsType[*ChainError](err)
	if !ok || broken.Line != line || !errors.Is(err, ErrChain) {
		t.Errorf("%s: %v; want line %d", name, err, line)
	}
	if s.Records != line-1 {
		t.Errorf("%s: %d records before line %d", name, s.Records, line)
	}
}
