package hosttest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Each piece and each ending does what its name says.
func TestGuests(t *testing.T) {
	const question = `{"document_sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","nonce":"0123456789abcdef0123456789abcdef"}`
	for _, c := range []struct {
		name  string
		guest hosttest.Guest
		input string
		want  string
		code  abi.Code
	}{
		{"text", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("a"), hosttest.Text(""), hosttest.Text("b"), hosttest.Blanks(2)}}, "", "ab  ", abi.OK},
		{"input", hosttest.Guest{Says: hosttest.Result(hosttest.Input())}, `"x"`, `{"format":1,"result":"x"}`, abi.OK},
		{"verdict", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow"`)}, question,
			`{"nonce":"0123456789abcdef0123456789abcdef","document_sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","verdict":"allow"}`, abi.OK},
		{"reply", hosttest.Guest{Says: []hosttest.Piece{hosttest.Ask("state_get", `{"key":"session:a"}`)}}, "",
			`{"code":"capability_denied","message":"needs state read session:a"}`, abi.OK},
		{"reply of two bodies", hosttest.Guest{Says: []hosttest.Piece{hosttest.Ask("artifact_save", `{"name":"a"}`, "body")}}, "",
			`{"code":"capability_denied","message":"needs artifact write a"}`, abi.OK},
		{"at the gate", hosttest.Guest{Good: []hosttest.Piece{hosttest.Text("good")}, Ends: hosttest.Trap()}, `{"tool":"dry_run"}`, "good", abi.OK},
		{"behind the gate", hosttest.Guest{Good: []hosttest.Piece{hosttest.Text("good")}, Ends: hosttest.Trap()}, `{"tool":"real"}`, "", abi.GuestTrap},
		{"return", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("x")}, Ends: hosttest.Return(1)}, "", "", abi.GuestError},
		{"exit", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("x")}, Ends: hosttest.Exit(0)}, "", "", abi.GuestTrap},
		{"work", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("x")}, Ends: hosttest.Work(1000)}, "", "x", abi.OK},
		{"too much work", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("x")}, Ends: hosttest.Work(1 << 40)}, "", "", abi.GuestFuel},
		{"spin", hosttest.Guest{Ends: hosttest.Spin()}, "", "", abi.GuestTimeout},
		{"recurse", hosttest.Guest{Ends: hosttest.Recurse()}, "", "", abi.GuestStack},
		{"hoard", hosttest.Guest{Ends: hosttest.Hoard()}, "", "", abi.GuestMemory},
		{"flood", hosttest.Guest{Ends: hosttest.Flood("log", `{"message":"x"}`)}, "", "", abi.HostcallLimit},
		{"await", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("x")}, Ends: hosttest.Await("log", `{"message":"x"}`)}, "", "x", abi.OK},
		{"fail", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text("x")}, Ends: hosttest.Fail("no")}, "", "", abi.GuestError},
		{"nothing", hosttest.Guest{}, "", "", abi.GuestOutputInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine, err := host.Open(t.Context(), host.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			module, err := engine.Load(t.Context(), hosttest.Build(t, hosttest.Manifest("guest"), map[string]hosttest.Guest{"guest": c.guest}))
			if err != nil {
				t.Fatal(err)
			}
			limits := host.Limits{Wall: time.Minute} // the machine may be busy
			if c.code == abi.GuestTimeout {
				limits.Wall = 50 * time.Millisecond
			}
			reply, err := module.Call(t.Context(), &host.Call{Export: "guest", Input: []byte(c.input), Limits: limits})
			switch e, isGuest := errors.AsType[*host.GuestError](err); {
			case err == nil && (c.code != abi.OK || string(reply.Output) != c.want):
				t.Errorf("said %q, want %q, %s", reply.Output, c.want, c.code)
			case err != nil && (!isGuest || e.Code != c.code):
				t.Errorf("error %v, want %s", err, c.code)
			}
		})
	}
}
