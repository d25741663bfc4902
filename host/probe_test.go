package host

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A probed module tells what every call reached, one that trapped as well, and a change is
// on in the module that was asked for and in no other, though they share instances.
func TestProbed(t *testing.T) {
	b := &builder{}
	length := b.use(abi.ImportHost, "input_length")
	b.fn("call", ":i", 0, callFn(length), []byte{0xa7}, []byte{0x04, 0x7f}, i32(0), []byte{0x05}, i32(7), []byte{0x0b})
	wasm := packed(t, b.bytes())
	engine, _ := openEngine(t)
	bin, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	var changes []meter.Change
	for _, body := range bin.Bodies() {
		for s := body.Instructions(); s.Next(); {
			if in := s.Instruction(); meter.Invert.Turns(in.Op) {
				changes = append(changes, meter.Change{At: in.Start, To: meter.Invert})
			}
		}
	}
	p, err := engine.LoadProbed(t.Context(), wasm, Probe{Watch: func(int) bool { return true }, Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	production, err := engine.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	var seen []Seen
	plainly, changed := p.Module(0, func(s Seen) { seen = append(seen, s) }), p.Module(1, func(s Seen) { seen = append(seen, s) })
	if plainly.Digest() != production.Digest() || len(p.Blocks()) == 0 {
		t.Errorf("digest %s, want %s; %d blocks", plainly.Digest(), production.Digest(), len(p.Blocks()))
	}
	var reached []uint64
	for _, test := range []struct {
		module *Module
		input  string
		code   abi.Code
	}{
		{plainly, "x", abi.GuestOutputInvalid}, {changed, "x", abi.GuestError}, {plainly, "", abi.GuestError}, {changed, "", abi.GuestOutputInvalid}, {plainly, "x", abi.GuestOutputInvalid},
	} {
		seen = nil
		failure := fails(t, test.module, &Call{Export: "call", Input: []byte(test.input)}, test.code)
		same := fails(t, production, &Call{Export: "call", Input: []byte(test.input)}, map[string]abi.Code{"x": abi.GuestOutputInvalid, "": abi.GuestError}[test.input])
		if test.module == plainly && failure.Receipt.Fuel != same.Receipt.Fuel {
			t.Errorf("fuel %d, want %d", failure.Receipt.Fuel, same.Receipt.Fuel)
		}
		if len(seen) != 1 || bits.OnesCount64(seen[0].Blocks[0]) < 2 {
			t.Fatalf("seen %+v", seen)
		}
		reached = append(reached, seen[0].Blocks[0])
	}
	if want := []uint64{reached[0], reached[2], reached[2], reached[0], reached[0]}; !slices.Equal(reached, want) || reached[0] == reached[2] {
		t.Errorf("reached %b", reached)
	}
}
