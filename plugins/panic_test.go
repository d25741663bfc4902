package plugins

import "testing"

func TestPanicText(t *testing.T) {
	for _, c := range []struct {
		name, detail, want string
	}{
		{"Go", `wasm error: unreachable; stderr: panic: index out of range\n\ngoroutine 1 [running]:\nmain.call()\n\tguest/main.go:45`, "index out of range"},
		{"recovered before", `unreachable; stderr: panic: boom [recovered]\n\tpanic: boom`, "boom"},
		{"no stack", `unreachable; stderr: panic: out of ideas`, "out of ideas"},
		{"no text", `unreachable; stderr: panic: \n\ngoroutine 1`, ""},
		{"not a panic", `unreachable; stderr: something else`, ""},
		{"nothing written", `unreachable`, ""},
	} {
		got, ok := panicText(c.detail)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: panicText(%q) = %q, %t, want %q", c.name, c.detail, got, ok, c.want)
		}
	}
}
