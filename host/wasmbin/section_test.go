package wasmbin

import (
	"bytes"
	"testing"
)

// What a section says about where it lies is what cutting and replacing rely on.
func TestSectionsCoverTheModule(t *testing.T) {
	section := func(name, data string) string {
		return "\x00" + string(rune(1+len(name)+len(data))) + string(rune(len(name))) + name + data
	}
	empty := "\x00asm\x01\x00\x00\x00"
	module := []byte(empty + section("a", "one") + "\x01\x04\x01\x60\x00\x00" + section("b", "two"))
	m, err := Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	at := len(empty)
	for i, s := range m.Sections {
		if s.Start != at || s.End <= s.Start || module[s.Start] != s.ID {
			t.Errorf("section %d lies at %d to %d and begins with id %d, want it to begin at %d with id %d", i, s.Start, s.End, module[s.Start], at, s.ID)
		}
		at = s.End
	}
	if at != len(module) {
		t.Errorf("sections end at %d, the module at %d", at, len(module))
	}
	replaced, err := SetCustom(module, "a", []byte("three"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte(empty + section("a", "three") + "\x01\x04\x01\x60\x00\x00" + section("b", "two")); !bytes.Equal(replaced, want) {
		t.Errorf("replaced a: got %q, want %q", replaced, want)
	}
	for keep, want := range map[string]string{
		"":  empty + "\x01\x04\x01\x60\x00\x00",
		"b": empty + "\x01\x04\x01\x60\x00\x00" + section("b", "two"),
	} {
		if got := m.WithoutCustom(keep); !bytes.Equal(got, []byte(want)) {
			t.Errorf("without custom sections but %q: got %q, want %q", keep, got, want)
		}
	}
}
