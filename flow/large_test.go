package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

const tooLarge = `guest_output_too_large: the tool gave an answer that is too long`

// ofBytes is a result of so many bytes, in canonical form.
func ofBytes(n int) string {
	const around = len(`{"text":""}`)
	return `{"text":"` + strings.Repeat("ä", (n-around)/2) + strings.Repeat("x", (n-around)%2) + `"}`
}

// A stream says a text in pieces.
type stream struct {
	spec   flow.Spec
	pieces []string
}

func (s *stream) Spec() *flow.Spec { return &s.spec }

func (s *stream) Stream(*flow.ToolContext, flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		for _, p := range s.pieces {
			if !yield(flow.Chunk{Text: p}, nil) {
				return
			}
		}
	}
}

// What guards are asked about a result.
type seenResults struct{ docs []string }

func (s *seenResults) guard(judge func(doc string) abi.Verdict) flow.Guard {
	return &flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResult}, Rewrite: []abi.Phase{abi.PhaseResult},
		Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			s.docs = append(s.docs, string(q.Result))
			return flowtest.Echo(q, judge(string(q.Result))), nil
		}}
}

// A result that is too long to show is stored whole, judged whole, and what the
// model is shown instead says so.
func TestLongResult(t *testing.T) {
	const size = 2 << 20
	whole, largest := ofBytes(size), ofBytes(10<<20)
	streamed := &stream{flow.Spec{Name: "tool"}, []string{strings.Repeat("a", size/2), strings.Repeat("b", size/2)}}
	redacted := `{"redacted":"` + strings.Repeat("*", size) + `"}`
	for _, c := range []struct {
		name  string
		tool  flow.Tool
		after string // what an after-tool hook makes of the result
		judge func(string) abi.Verdict
		want  string // what is stored
	}{
		{name: "native", tool: handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return largest, nil }), want: largest},
		{name: "streamed", tool: streamed, want: `{"result":"` + strings.Join(streamed.pieces, "") + `"}`},
		{name: "of a hook", tool: tool("tool"), after: whole, want: whole},
		{name: "rewritten", tool: handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return whole, nil }),
			judge: func(doc string) abi.Verdict {
				if len(doc) < size {
					return abi.Allow()
				}
				return abi.Rewrite(json.RawMessage(redacted))
			}, want: redacted},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.judge == nil {
				c.judge = func(string) abi.Verdict { return abi.Allow() }
			}
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			var seen seenResults
			w.cfg.Guards = []flow.Guard{seen.guard(c.judge)}
			w.cfg.Limits.Guard = 1 << 40
			artifacts := flow.NewMemoryArtifacts()
			w.cfg.Artifacts = artifacts
			w.agent.Tools = []flow.Tool{c.tool}
			if c.after != "" {
				w.agent.Hooks = []flow.Hooks{{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
					v, err := abi.Unmarshal([]byte(c.after))
					return v.(map[string]any), err
				}}}
			}
			var sent int
			w.model.OnRequest = func(req *flow.Request, _ bool) { sent = len(toJSON(t, req.Contents)) }
			o := w.say("go")

			names, err := artifacts.List(t.Context(), home)
			if err != nil || len(names) != 1 {
				t.Fatalf("artifacts %v, %v", names, err)
			}
			part, err := artifacts.Load(t.Context(), home, names[0], 0)
			if err != nil || string(part.InlineData.Data) != c.want || part.InlineData.MIMEType != "application/json" {
				t.Errorf("the artifact is not the result: %v", err)
			}
			if got := o.events[1].Actions.ArtifactDelta; len(got) != 1 || got[names[0]] != 1 {
				t.Errorf("artifact delta %v", got)
			}
			var shown struct {
				Status, Artifact, Beginning string
				Bytes                       int
			}
			if err := abi.Decode([]byte(strings.NewReplacer(`"status"`, `"Status"`, `"artifact"`, `"Artifact"`, `"beginning"`, `"Beginning"`, `"bytes"`, `"Bytes"`).
				Replace(o.response("c1"))), &shown); err != nil {
				t.Fatalf("%v: %s", err, o.response("c1"))
			}
			if shown.Artifact != names[0] || shown.Bytes != len(c.want) || !strings.HasPrefix(c.want, shown.Beginning) || len(shown.Beginning) < 2000 ||
				!contains(shown.Status, fmt.Sprint(len(c.want))) || !contains(shown.Status, names[0]) {
				t.Errorf("shown %+.200v", shown)
			}
			if len(seen.docs) != 2 || len(seen.docs[0]) < size || seen.docs[1] != o.response("c1") {
				t.Errorf("guards were asked about %d documents", len(seen.docs))
			}
			if sent > 8<<10 {
				t.Errorf("the model was sent %d bytes", sent)
			}
		})
	}
}

// A long result that cannot be shown is refused, and nothing of it is shown.
func TestLongResultRefused(t *testing.T) {
	const denied = "policy_denied: a policy refused this call"
	allow := func(string) abi.Verdict { return abi.Allow() }
	for _, c := range []struct {
		name      string
		size      int
		artifacts flow.Artifacts
		judge     func(string) abi.Verdict
		want      string
		judged    int // documents longer than what a model is shown
	}{
		{"as long as a model is shown", flow.MaxShown, nil, allow, "", 0},
		{"without artifacts", flow.MaxShown + 1, nil, allow, tooLarge, 1},
		{"artifacts fail", flow.MaxShown + 1, fullArtifacts{}, allow, tooLarge, 1},
		{"as long as can be", flow.MaxResult, flow.NewMemoryArtifacts(), allow, "", 1},
		{"longer", flow.MaxResult + 1, flow.NewMemoryArtifacts(), allow, tooLarge, 0},
		{"denied as a whole", flow.MaxShown + 1, fullArtifacts{}, func(doc string) abi.Verdict {
			if len(doc) > flow.MaxShown {
				return abi.Deny("no", "")
			}
			return abi.Allow()
		}, denied, 1},
		{"denied as shown", flow.MaxShown + 1, fullArtifacts{}, func(doc string) abi.Verdict {
			if len(doc) <= flow.MaxShown {
				return abi.Deny("no", "")
			}
			return abi.Allow()
		}, denied, 1},
		{"shown document grows", flow.MaxShown + 1, flow.NewMemoryArtifacts(), func(doc string) abi.Verdict {
			if len(doc) <= flow.MaxShown {
				return abi.Rewrite(json.RawMessage(ofBytes(flow.MaxShown + 1)))
			}
			return abi.Allow()
		}, tooLarge, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			var seen seenResults
			w.cfg.Guards = []flow.Guard{seen.guard(c.judge)}
			w.cfg.Limits.Guard = 1 << 40
			w.cfg.Artifacts = c.artifacts
			w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				return ofBytes(c.size), ctx.SetState(map[string]any{"done": true})
			})}
			o := w.say("go")
			if got := o.errorOf("c1"); got != c.want {
				t.Errorf("the model reads %.200q, want %q", got, c.want)
			}
			judged := 0
			for _, doc := range seen.docs {
				if len(doc) > flow.MaxShown {
					judged++
				}
			}
			if judged != c.judged {
				t.Errorf("guards were asked about %d long documents, want %d", judged, c.judged)
			}
			calls := w.calls()
			kept := c.size <= flow.MaxResult
			if len(calls) != 1 || calls[0].State != session.CallDone || kept != (len(calls[0].Result) == c.size) || !kept && len(calls[0].Result) != 0 {
				t.Errorf("call %s, result of %d bytes", calls[0].State, len(calls[0].Result))
			}
			if delta := o.events[1].Actions.ArtifactDelta; c.want != "" && len(delta) > 0 {
				t.Errorf("artifact delta %v", delta)
			}
		})
	}
}

// A result of many objects and arrays, which take much more memory than their text, is refused, whoever
// made it; brackets in texts are none.
func TestManyContainers(t *testing.T) {
	objects := func(n int) string {
		return `{"a":[` + strings.Repeat(`{},`, n-3) + `{"}":"\\\"[{"}],"b":"\"` + strings.Repeat("{", 10) + `"}`
	}
	allow := func(string) abi.Verdict { return abi.Allow() }
	for _, c := range []struct {
		name   string
		result string
		judge  func(string) abi.Verdict
		hook   string
		want   string
	}{
		{"as many as can be", objects(flow.MaxContainers), allow, "", ""},
		{"more", objects(flow.MaxContainers + 1), allow, "", tooLarge},
		{"arrays", `{"a":[` + strings.Repeat(`[],`, flow.MaxContainers) + `0]}`, allow, "", tooLarge},
		{"a guard's", `{}`, func(string) abi.Verdict { return abi.Rewrite(json.RawMessage(objects(flow.MaxContainers + 1))) }, "", tooLarge},
		{"a hook's", `{}`, allow, objects(flow.MaxContainers + 1), tooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			var seen seenResults
			w.cfg.Guards = []flow.Guard{seen.guard(c.judge)}
			w.cfg.Limits.Guard = 1 << 40
			if c.hook != "" {
				w.agent.Hooks = []flow.Hooks{{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
					v, err := abi.Unmarshal([]byte(c.hook))
					return v.(map[string]any), err
				}}}
			}
			w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return c.result, nil })}
			o := w.say("go")
			if got := o.errorOf("c1"); got != c.want {
				t.Errorf("the model reads %.200q, want %q", got, c.want)
			}
		})
	}
}

// fullArtifacts keep nothing.
type fullArtifacts struct{}

func (fullArtifacts) Save(context.Context, session.Key, string, *genai.Part) (int64, error) {
	return 0, errors.New("disk full")
}

func (fullArtifacts) Load(context.Context, session.Key, string, int64) (*genai.Part, error) {
	return nil, errors.New("disk full")
}

func (fullArtifacts) List(context.Context, session.Key) ([]string, error) { return nil, nil }
