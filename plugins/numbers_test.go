package plugins_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/plugins"
)

// From the wire of a model to a guest and back to the wire, every digit and every
// character stays.
func TestModelToGuestToModel(t *testing.T) {
	const args = `{"amount":0.10,"ids":[9007199254740993,-9007199254740993,123456789012345678901234567890],"text":"ä世𝄞\u2028 <&>\u0000"}`
	manifest := hosttest.Manifest("echo")
	manifest.Tools[0].Raw = true
	z := newZoo(t, manifest, plugins.Config{}, map[string]hosttest.Guest{"echo": {Says: []hosttest.Piece{hosttest.Input()}}})
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		part := `{"text":"done"}`
		if asked = append(asked, string(body)); len(asked) == 1 {
			part = fmt.Sprintf(`{"functionCall":{"id":"c1","name":"echo","args":%s}}`, args)
		}
		fmt.Fprintf(w, `{"candidates":[{"content":{"role":"model","parts":[%s]},"finishReason":"STOP"}]}`, part)
	}))
	defer server.Close()
	var err error
	if z.agent.Model, err = gemini.New(t.Context(), gemini.Config{Name: "m", APIKey: "key", BaseURL: server.URL}); err != nil {
		t.Fatal(err)
	}
	events := z.run(flow.Text("go"))
	for what, got := range map[string]string{"call": toJSON(t, events[0].Calls()[0].Args), "response": response(t, events, "c1")} {
		if got != toJSON(t, call("c1", "echo", args).Args) {
			t.Errorf("%s %s, want %s", what, got, args)
		}
	}
	if len(asked) != 2 {
		t.Fatalf("%d requests", len(asked))
	}
	for _, number := range []string{"0.10", "9007199254740993", "-9007199254740993", "123456789012345678901234567890"} {
		if n := strings.Count(asked[1], ":"+number+",") + strings.Count(asked[1], "["+number) + strings.Count(asked[1], ","+number); n != 2 {
			t.Errorf("the second request has %s %d times, want it in the call and in the response: %s", number, n, asked[1])
		}
	}
	if n := strings.Count(asked[1], "ä世𝄞"); n != 2 {
		t.Errorf("the second request has the text %d times: %s", n, asked[1])
	}
}
