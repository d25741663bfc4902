package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/script"
	"github.com/sandboxd/sandboxd/session"
)

var _ flow.Model = (*script.Model)(nil)

// contents decodes contents in a short form, one a line:
//
//	user TEXT | model TEXT | call ID TOOL ARGS ... | result ID TOOL RESPONSE ...
//
// where ID may be "-" for none, and "..." is more calls or results, after ";".
func contents(t *testing.T, text string) []*genai.Content {
	t.Helper()
	var out []*genai.Content
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "user":
			out = append(out, genai.NewContentFromText(rest, genai.RoleUser))
		case "model":
			out = append(out, genai.NewContentFromText(rest, genai.RoleModel))
		case "call", "result":
			c := &genai.Content{Role: map[string]string{"call": genai.RoleModel, "result": genai.RoleUser}[verb]}
			for item := range strings.SplitSeq(rest, ";") {
				fields := strings.SplitN(strings.TrimSpace(item), " ", 3)
				id := strings.TrimPrefix(fields[0], "-")
				var object map[string]any
				if err := json.Unmarshal([]byte(fields[2]), &object); err != nil {
					t.Fatalf("%s: %v", item, err)
				}
				if verb == "call" {
					c.Parts = append(c.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: fields[1], Args: object}})
				} else {
					c.Parts = append(c.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: fields[1], Response: object}})
				}
			}
			out = append(out, c)
		default:
			t.Fatalf("unknown content %q", line)
		}
	}
	return out
}

func ask(t *testing.T, m *script.Model, cs []*genai.Content, stream bool) ([]*session.Response, error) {
	t.Helper()
	var out []*session.Response
	for response, err := range m.Generate(t.Context(), &flow.Request{Contents: cs}, stream) {
		if err != nil {
			return out, err
		}
		out = append(out, response)
	}
	return out, nil
}

func parse(t *testing.T, text string) *script.Model {
	t.Helper()
	m, err := script.Parse([]byte(text), "replies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStream(t *testing.T) {
	m := parse(t, "format: 1\nrules:\n  - reply:\n      - {think: hm, say: 'It is −3 °C', call: [{tool: f}]}\n")
	got, err := ask(t, m, contents(t, "user x"), true)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"content":{"parts":[{"text":"h","thought":true}],"role":"model"},"partial":true}`,
		`{"content":{"parts":[{"text":"m","thought":true}],"role":"model"},"partial":true}`,
		`{"content":{"parts":[{"text":"It"}],"role":"model"},"partial":true}`,
		`{"content":{"parts":[{"text":" is"}],"role":"model"},"partial":true}`,
		`{"content":{"parts":[{"text":" −3"}],"role":"model"},"partial":true}`,
		`{"content":{"parts":[{"text":" °C"}],"role":"model"},"partial":true}`,
		`{"content":{"parts":[{"text":"hm","thought":true},{"text":"It is −3 °C"},{"functionCall":{"id":"call-1","name":"f"}}],"role":"model"},"finishReason":"STOP"}`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d responses, want %d: %s", len(got), len(want), marshal(t, got))
	}
	for i := range want {
		if got := marshal(t, got[i]); got != want[i] {
			t.Errorf("response %d\ngot  %s\nwant %s", i, got, want[i])
		}
	}
}

func TestStreamStops(t *testing.T) {
	m := parse(t, weather)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("enough")
	n := 0
	var got error
	for _, err := range m.Generate(ctx, &flow.Request{Contents: contents(t, "user hello")}, true) {
		n++
		got = err
		cancel(cause)
	}
	if n != 2 || !errors.Is(got, cause) {
		t.Errorf("%d responses and error %v, want 1 and then %v", n, got, cause)
	}
	for _, err := range m.Generate(ctx, &flow.Request{Contents: contents(t, "user hello")}, false) {
		if !errors.Is(err, cause) {
			t.Errorf("error %v, want %v", err, cause)
		}
	}
	n = 0
	for range m.Generate(t.Context(), &flow.Request{Contents: contents(t, "user hello")}, true) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d responses, want 1", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	m := parse(t, weather)
	cs := contents(t, "user weather in Oslo\ncall call-1-sky forecast {}; call-2 tide {}\nresult call-1-sky forecast "+forecast+"; call-2 tide {}")
	var wg sync.WaitGroup
	texts := make([]string, 16)
	for i := range texts {
		wg.Go(func() {
			for response, err := range m.Generate(t.Context(), &flow.Request{Contents: cs}, i%2 == 0) {
				if err != nil {
					t.Error(err)
					return
				}
				texts[i] += marshal(t, response)
			}
		})
	}
	wg.Wait()
	for i, text := range texts {
		if text != texts[0] || text == "" {
			t.Errorf("answer %d is %s, want %s", i, text, texts[0])
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "replies.json")
	if err := os.WriteFile(path, []byte(`{"format":1,"rules":[{"reply":[{"say":"caf\u00e9"}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := script.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, m, nil, false); err != nil || got[0].Text() != "café" || m.Name() != "script" {
		t.Errorf("got %s, %v from %s", marshal(t, got), err, m.Name())
	}
	if _, err := script.Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := script.Open(path); err == nil || err.Error() != "replies.json: file exceeds limit 1048576 bytes" {
		t.Errorf("error %v", err)
	}
}
