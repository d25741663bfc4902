package host

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	sdk "github.com/extism/go-sdk"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// peerGuest returns the guest that is written with Extism's Go PDK.
func peerGuest(t testing.TB, tags string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "peer.wasm")
	cmd := exec.Command("go", "build", "-tags="+tags, "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -buildid=",
		"-o", out, "./testdata/peer")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(string(text))
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// fixture returns a guest that is checked in.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("..", "testdata", "wasm", name))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// packedFor returns the module with a manifest whose tools are these exports.
func packedFor(t testing.TB, wasm []byte, exports ...string) []byte {
	t.Helper()
	manifest := &abi.Manifest{ABI: 1, Name: "peer", Version: "1"}
	for _, x := range exports {
		manifest.Tools = append(manifest.Tools, abi.Tool{Name: x, Export: x, Effects: abi.None})
	}
	data, err := manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := wasmbin.SetCustom(wasm, abi.ManifestSection, data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A peer is a way to run a guest. Its turn takes some milliseconds, so that what it leaves
// to be collected is collected at its own cost.
type peer struct {
	name  string
	calls int // in one turn
	call  func() ([]byte, error)
}

// compare runs the peers in turns and returns the median, over turns, of the mean time of a call
// of each. Every answer must be want.
func compare(b *testing.B, want []byte, peers ...peer) map[string]time.Duration {
	times := map[string][]time.Duration{}
	for _, p := range peers { // once before it counts
		if got, err := p.call(); err != nil || !bytes.Equal(got, want) {
			b.Fatalf("%s: answer %.60q, error %v; want %.60q", p.name, got, err, want)
		}
	}
	for b.Loop() {
		for _, p := range peers {
			from := time.Now()
			for range p.calls {
				if got, err := p.call(); err != nil || !bytes.Equal(got, want) {
					b.Fatalf("%s: answer %.60q, error %v; want %.60q", p.name, got, err, want)
				}
			}
			times[p.name] = append(times[p.name], time.Since(from)/time.Duration(p.calls))
		}
	}
	medians := map[string]time.Duration{}
	for name, all := range times {
		slices.Sort(all)
		medians[name] = all[len(all)/2]
		b.ReportMetric(float64(medians[name].Nanoseconds())/1e3, name+"-us")
	}
	return medians
}

// enough is how many turns a benchmark needs before its ratios are held against what is promised.
const enough = 10

// ratio reports how many times longer one peer takes than another, and fails outside bounds; 0
// is none.
func ratio(b *testing.B, medians map[string]time.Duration, slow, fast string, least, most float64) {
	r := float64(medians[slow]) / float64(medians[fast])
	b.ReportMetric(r, slow+"/"+fast)
	if b.N >= enough && (r < least || most > 0 && r > most) {
		b.Errorf("%s takes %v, %.1f times as long as %s with %v; want at least %v times and at most %v (0: any)", slow, medians[slow], r, fast, medians[fast], least, most)
	}
}

// theirs returns the guest in Extism's SDK, made anew for a call and made once.
func extismPeers(b *testing.B, wasm []byte, export string, input []byte) (fresh, reused func() ([]byte, error)) {
	ctx := context.Background()
	manifest := sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmData{Data: wasm}}, Timeout: 5000}
	compiled, err := sdk.NewCompiledPlugin(ctx, manifest, sdk.PluginConfig{EnableWasi: true}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { compiled.Close(ctx) })
	one, err := compiled.Instance(ctx, sdk.PluginInstanceConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { one.Close(ctx) })
	answer := func(p *sdk.Plugin) ([]byte, error) {
		code, out, err := p.Call(export, input)
		if err == nil && code != 0 {
			err = fmt.Errorf("code %d", code)
		}
		return out, err
	}
	return func() ([]byte, error) {
		p, err := compiled.Instance(ctx, sdk.PluginInstanceConfig{})
		if err != nil {
			return nil, err
		}
		defer p.Close(ctx)
		return answer(p)
	}, func() ([]byte, error) { return answer(one) }
}

// unset returns a way to call an instance again and again that is never set back, which shows
// what setting back costs. The rest is what [Module.Call] does.
func unset(b *testing.B, m *Module, c *Call) func() ([]byte, error) {
	if _, err := m.Call(b.Context(), c); err != nil { // makes the image
		b.Fatal(err)
	}
	if _, err := m.engine.enter(m.code); err != nil {
		b.Fatal(err)
	}
	first := newFrame(b.Context(), m, c)
	first.entered = true
	first.startClock(time.Now(), time.Minute)
	if err := first.getInstance(); err != nil {
		b.Fatal(err)
	}
	inst := first.instance
	b.Cleanup(func() {
		first.instance = inst
		if first.putInstance(); first.entered {
			m.engine.leave(m.code)
		}
	})
	again := func(f *frame) (int32, error) {
		defer f.logs.flush()
		defer func() { f.fuel.used = f.spent() }()
		if inst.arena != nil {
			inst.arena.closeWindows() // on what the call before had
			inst.arena.free, inst.arena.top = nil, 0
		}
		inst.give(f)
		f.startClock(time.Now(), f.limits.Wall)
		defer f.stopClock()
		f.fill(f.limits.Fuel)
		f.input, f.extism.in = c.Input, c.Input
		f.live = true
		return f.invoke(c.Export)
	}
	return func() ([]byte, error) {
		f := newFrame(b.Context(), m, c)
		code, err := again(f)
		if err == nil && code != 0 {
			err = fmt.Errorf("code %d", code)
		}
		reply := &Reply{Output: f.output, Receipt: f.receipt()}
		f.forget()
		return output(reply, err)
	}
}

// BenchmarkPeers runs guests here and with Extism's own SDK, with a deadline in both. Here
// every call begins in a fresh state, is metered, and its output is copied.
func BenchmarkPeers(b *testing.B) {
	for _, c := range []struct {
		name               string
		wasm               []byte
		turn               int
		fresh, reused, set float64 // least, least, most
	}{
		{"go", peerGuest(b, ""), 8, 150, 3, 2},
		{"go-cold", peerGuest(b, "cold"), 8, 25, 0, 0}, // without warm_up
		{"as", fixture(b, "peer-as.wasm"), 32, 75, 15, 2.5},
		{"c", fixture(b, "peer.wasm"), 32, 100, 15, 2.5},
	} {
		b.Run(c.name, func(b *testing.B) {
			input := []byte(`{"city":"Paris"}`)
			m, err := shared.Load(b.Context(), packedFor(b, c.wasm, "weather", "echo"))
			if err != nil {
				b.Fatal(err)
			}
			call := &Call{Export: "weather", Input: input}
			fresh, reused := extismPeers(b, c.wasm, "weather", input)
			want, err := fresh()
			if err != nil {
				b.Fatal(err)
			}
			medians := compare(b, want,
				peer{"extism-fresh", c.turn, fresh}, peer{"extism-reused", 8 * c.turn, reused},
				peer{"ours", 32 * c.turn, func() ([]byte, error) { return output(m.Call(b.Context(), call)) }},
				peer{"ours-not-set-back", 32 * c.turn, unset(b, m, call)})
			ratio(b, medians, "extism-fresh", "ours", c.fresh, 0)
			ratio(b, medians, "extism-reused", "ours", c.reused, 0)
			ratio(b, medians, "ours", "ours-not-set-back", 0, c.set)
		})
	}
	for _, c := range []struct {
		name  string
		wasm  []byte
		least float64
	}{{"echo-64k/go", peerGuest(b, ""), 8}, {"echo-64k/c", fixture(b, "peer.wasm"), 10}, {"echo-64k/as", fixture(b, "peer-as.wasm"), 10}} {
		b.Run(c.name, func(b *testing.B) {
			input := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
			m, err := shared.Load(b.Context(), packedFor(b, c.wasm, "weather", "echo"))
			if err != nil {
				b.Fatal(err)
			}
			call := &Call{Export: "echo", Input: input}
			_, reused := extismPeers(b, c.wasm, "echo", input)
			medians := compare(b, input, peer{"extism-reused", 16, reused},
				peer{"ours", 64, func() ([]byte, error) { return output(m.Call(b.Context(), call)) }})
			ratio(b, medians, "extism-reused", "ours", c.least, 0)
		})
	}
}

func output(r *Reply, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return r.Output, nil
}
