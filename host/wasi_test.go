package host

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestClock(t *testing.T) {
	m := loadGo(t)
	now := time.Date(2026, 3, 1, 9, 0, 0, 123_456_789, time.UTC)
	const start = "2026-03-01T09:00:00.123Z"
	for _, test := range []struct {
		name   string
		kind   abi.Kind
		grants []string
		moves  bool
	}{
		{"tool", abi.KindTool, nil, false},
		{"tool with clock", abi.KindTool, []string{"clock"}, true},
		{"hook with clock", abi.KindHook, []string{"clock"}, true},
		{"guard with clock", abi.KindGuard, []string{"clock"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out struct {
				Wall, After string
				SleptMS     int64 `json:"slept_ms"`
			}
			succeeds(t, m, &Call{Kind: test.kind, Export: "call", Input: []byte(`{"do":"time","n":20}`), Now: now, Grants: grants(t, test.grants...),
				Limits: Limits{Wall: 5 * time.Second}}, &out)
			if !test.moves && (out.Wall != start || out.After != start) {
				t.Errorf("wall time %s and %s, want %s", out.Wall, out.After, start)
			}
			if test.moves && (out.Wall < start || out.After <= out.Wall) {
				t.Errorf("wall time %s and %s, want it to move from %s", out.Wall, out.After, start)
			}
			if out.SleptMS < 20 {
				t.Errorf("slept %d ms, want 20", out.SleptMS)
			}
		})
	}
	var out struct{ Wall string }
	succeeds(t, m, &Call{Export: "call", Input: []byte(`{"do":"time"}`)}, &out)
	if wall, err := time.Parse(time.RFC3339Nano, out.Wall); err != nil || time.Since(wall).Abs() > time.Minute {
		t.Errorf("without Now, wall time %s, error %v", out.Wall, err)
	}
}

func TestRandom(t *testing.T) {
	m := loadGo(t)
	draw := func(kind abi.Kind, seed []byte) string {
		var out string
		succeeds(t, m, &Call{Kind: kind, Export: "call", Input: []byte(`{"do":"random"}`), Seed: seed, Limits: Limits{Wall: 5 * time.Second}}, &out)
		return out
	}
	if a, b := draw(abi.KindTool, nil), draw(abi.KindTool, nil); a == b {
		t.Errorf("two tools drew %s", a)
	}
	if a, b := draw(abi.KindGuard, []byte("q1")), draw(abi.KindGuard, []byte("q1")); a != b {
		t.Errorf("judging again drew %s and %s", a, b)
	}
	if a, b := draw(abi.KindGuard, []byte("q1")), draw(abi.KindGuard, []byte("q2")); a == b {
		t.Errorf("two questions drew %s", a)
	}
	if a, b := draw(abi.KindGuard, nil), draw(abi.KindGuard, nil); a != b {
		t.Errorf("a guard without a seed drew %s and %s", a, b)
	}
	if a, b := draw(abi.KindTool, []byte("1")), draw(abi.KindTool, []byte("1")); a != b {
		t.Errorf("a seeded tool drew %s and %s", a, b)
	}
}

func TestStandardOutput(t *testing.T) {
	m := loadGo(t)
	w := newWorld()
	c := &Call{Export: "call", Input: []byte(`{"do":"print"}`), Access: w.access()}
	reply := succeeds(t, m, c, new(bool))
	if len(w.lines) != 0 || reply.Receipt.Denied != nil || reply.Receipt.LogBytes == 0 {
		t.Errorf("without the grant: lines %q, receipt %+v", w.lines, reply.Receipt)
	}
	c.Grants = grants(t, "log")
	succeeds(t, m, c, new(bool))
	if got, want := fmt.Sprint(w.lines), `[info standard output warn standard error\u{1b}[31m info no end]`; got != want {
		t.Errorf("log %s, want %s", got, want)
	}
}

// TestWASIErrors: what a guest cannot have is an error number, never a trap.
func TestWASIErrors(t *testing.T) {
	tests := []struct {
		call string
		args [][]byte
		want uint64
	}{
		{"args_get", [][]byte{i32(0), i32(0)}, errnoOK},
		{"environ_get", [][]byte{i32(0), i32(0)}, errnoOK},
		{"args_sizes_get", [][]byte{i32(600), i32(604)}, errnoOK},
		{"clock_time_get", [][]byte{i32(2), i64(0), i32(600)}, errnoInval},
		{"clock_res_get", [][]byte{i32(3), i32(600)}, errnoInval},
		{"clock_res_get", [][]byte{i32(1), i32(600)}, errnoOK},
		{"sched_yield", nil, errnoOK},
		{"fd_write", [][]byte{i32(0), i32(600), i32(0), i32(600)}, errnoBadf},
		{"fd_write", [][]byte{i32(3), i32(600), i32(0), i32(600)}, errnoBadf},
		{"fd_read", [][]byte{i32(0), i32(600), i32(0), i32(600)}, errnoOK},
		{"fd_read", [][]byte{i32(3), i32(600), i32(0), i32(600)}, errnoBadf},
		{"fd_fdstat_get", [][]byte{i32(1), i32(600)}, errnoOK},
		{"fd_fdstat_get", [][]byte{i32(3), i32(600)}, errnoBadf},
		{"fd_close", [][]byte{i32(2)}, errnoOK},
		{"fd_close", [][]byte{i32(-1)}, errnoBadf},
		{"fd_seek", [][]byte{i32(1), i64(0), i32(0), i32(600)}, errnoSpipe},
		{"fd_seek", [][]byte{i32(7), i64(0), i32(0), i32(600)}, errnoBadf},
		{"fd_prestat_get", [][]byte{i32(3), i32(600)}, errnoBadf},
		{"fd_readdir", [][]byte{i32(3), i32(600), i32(8), i64(0), i32(600)}, errnoBadf},
		{"poll_oneoff", [][]byte{i32(600), i32(700), i32(0), i32(800)}, errnoInval},
		{"poll_oneoff", [][]byte{i32(600), i32(700), i32(-1), i32(800)}, errnoInval},
		{"poll_oneoff", [][]byte{i32(600), i32(700), i32(1), i32(800)}, errnoOK}, // a timeout of zero
	}
	for _, test := range tests {
		m := load(t, word([]string{"wasi." + test.call}, func(fn map[string]int) []byte {
			return join(join(test.args...), callFn(fn[test.call]), extend)
		}).bytes())
		reply, err := m.Call(t.Context(), &Call{Export: "call"})
		if err != nil {
			t.Errorf("%s: %v", test.call, err)
			continue
		}
		if got := binary.LittleEndian.Uint64(reply.Output); got != test.want {
			t.Errorf("%s: %d, want %d", test.call, got, test.want)
		}
	}
}

// TestNoFiles: what names a path or a socket is not there.
func TestNoFiles(t *testing.T) {
	for _, f := range wasiFunctions {
		if strings.HasPrefix(f.name, "path_") || strings.HasPrefix(f.name, "sock_") {
			t.Errorf("%s can be imported", f.name)
		}
	}
}
