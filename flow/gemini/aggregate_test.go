package gemini_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/session"
)

// The worked examples of ADK's aggregation rules. A chunk that starts with "[" is
// the list of parts of a chunk without anything else.
func TestAggregate(t *testing.T) {
	const stop = `{"candidates":[{"content":{"role":"model","parts":[{}]},"finishReason":"STOP"}]}`
	tests := []struct {
		name      string
		chunks    []string
		want      string // parts
		errorCode string
	}{
		{
			name: "text is joined",
			chunks: []string{
				`[{"text":"Hel"}]`, `[{"text":"lo"}]`,
				`{"candidates":[{"content":{"parts":[{"text":"!"}]},"finishReason":"STOP"}]}`,
			},
			want: `[{"text":"Hello!"}]`,
		},
		{
			name:   "thought and text stay apart",
			chunks: []string{`[{"text":"hm","thought":true}]`, `[{"text":"m","thought":true}]`, `[{"text":"Hi"}]`, stop},
			want:   `[{"text":"hmm","thought":true},{"text":"Hi"}]`,
		},
		{
			name:   "thoughts around text in one chunk",
			chunks: []string{`[{"text":"a","thought":true},{"text":"b"},{"text":"c","thought":true}]`},
			want:   `[{"text":"a","thought":true},{"text":"b"},{"text":"c","thought":true}]`,
		},
		{
			name:   "whole call after text",
			chunks: []string{`[{"text":"Checking"}]`, `[{"functionCall":{"name":"get_weather","id":"w1","args":{"city":"HZ"}}}]`, stop},
			want:   `[{"text":"Checking"},{"functionCall":{"name":"get_weather","id":"w1","args":{"city":"HZ"}}}]`,
		},
		{
			name: "arguments by path",
			chunks: []string{
				`[{"functionCall":{"name":"find","id":"c1","willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.location.city","stringValue":"To"}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.location.city","stringValue":"kyo"}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.days","numberValue":3}]}}]`,
			},
			want: `[{"functionCall":{"name":"find","id":"c1","args":{"location":{"city":"Tokyo"},"days":3}}}]`,
		},
		{
			name: "text inside a streamed call comes before it",
			chunks: []string{
				`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]`,
				`[{"text":"note"}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"y"}],"willContinue":false}}]`,
			},
			want: `[{"text":"note"},{"functionCall":{"name":"f","args":{"a":"xy"}}}]`,
		},
		{
			name: "a piece that does not continue is a call",
			chunks: []string{
				`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","numberValue":1}]}}]`,
				`[{"functionCall":{"name":"g","partialArgs":[{"jsonPath":"$.b","boolValue":false}]}}]`,
			},
			want: `[{"functionCall":{"name":"f","args":{"a":1}}},{"functionCall":{"name":"g","args":{"b":false}}}]`,
		},
		{
			name: "brackets are part of a name",
			chunks: []string{
				`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.items[0].n","stringValue":"p"}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.items[0].n","stringValue":"q"}]}}]`,
			},
			want: `[{"functionCall":{"name":"f","args":{"items[0]":{"n":"pq"}}}}]`,
		},
		{
			name: "a value is replaced by an object and by null",
			chunks: []string{
				`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.a.b","numberValue":1}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","nullValue":"NULL_VALUE"}]}}]`,
			},
			want: `[{"functionCall":{"name":"f","args":{"a":null}}}]`,
		},
		{
			name:   "closing ends the call",
			chunks: []string{`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]`},
			want:   `[{"functionCall":{"name":"f","args":{"a":"x"}}}]`,
		},
		{
			name: "calls that alternate are mixed",
			chunks: []string{
				`[{"functionCall":{"name":"f","id":"1","partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]`,
				`[{"functionCall":{"name":"g","id":"2","partialArgs":[{"jsonPath":"$.b","stringValue":"y"}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[]}}]`,
			},
			want: `[{"functionCall":{"name":"g","id":"2","args":{"a":"x","b":"y"}}}]`,
		},
		{
			name: "one whole call takes the thought's signature",
			chunks: []string{
				`[{"text":"th","thought":true,"thoughtSignature":"UzE="}]`,
				`[{"functionCall":{"name":"f"}}]`, `[{"functionCall":{"name":"g"}}]`,
			},
			want: `[{"text":"th","thought":true},{"functionCall":{"name":"f"},"thoughtSignature":"UzE="},{"functionCall":{"name":"g"}}]`,
		},
		{
			name:      "the last chunk's error",
			chunks:    []string{`[{"text":"par"}]`, `{"candidates":[{"finishReason":"MAX_TOKENS"}]}`},
			want:      `[{"text":"par"}]`,
			errorCode: "MAX_TOKENS",
		},
		{
			name: "an empty path and an empty value",
			chunks: []string{
				`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","numberValue":1}],"willContinue":true}}]`,
				`[{"functionCall":{"partialArgs":[{"jsonPath":"","stringValue":"zz"},{"jsonPath":"$.b","stringValue":""}]}}]`,
			},
			want: `[{"functionCall":{"name":"f","args":{"a":1}}}]`,
		},
		{
			name: "a call without name is ignored, data is kept",
			chunks: []string{
				`[{"functionCall":{"name":"","args":{"a":1}}}]`, `[{"text":"x"}]`,
				`[{"inlineData":{"mimeType":"image/png","data":"iVBORw=="}}]`, `[{"text":"y"}]`,
			},
			want: `[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"iVBORw=="}},{"text":"y"}]`,
		},
		{
			name: "whole and streamed by what the piece has",
			chunks: []string{
				`[{"functionCall":{"name":"f","willContinue":false,"args":{"a":1}}}]`,
				`[{"functionCall":{"name":"g","partialArgs":[],"args":{"b":2}}}]`,
			},
			want: `[{"functionCall":{"name":"f","willContinue":false,"args":{"a":1}}},{"functionCall":{"name":"g"}}]`,
		},
		// Beyond the worked examples.
		{
			name: "a streamed call keeps its first signature",
			chunks: []string{
				`[{"functionCall":{"name":"f","willContinue":true},"thoughtSignature":"UzE="}]`,
				`[{"functionCall":{"partialArgs":[]},"thoughtSignature":"UzI="}]`,
			},
			want: `[{"functionCall":{"name":"f"},"thoughtSignature":"UzE="}]`,
		},
		{
			name:   "a signature alone is a part",
			chunks: []string{`[{"text":"a"}]`, `[{"thoughtSignature":"UzE="}]`, `[{"text":"b"}]`},
			want:   `[{"text":"a"},{"thoughtSignature":"UzE="},{"text":"b"}]`,
		},
		{
			name:   "the path of a lone dollar",
			chunks: []string{`[{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$","numberValue":1}]}}]`},
			want:   `[{"functionCall":{"name":"f","args":{"$":1}}}]`,
		},
		{
			name:   "a null part",
			chunks: []string{`[null,{"text":"a"}]`},
			want:   `[{"text":"a"}]`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var a gemini.Aggregator
			for i, chunk := range test.chunks {
				if strings.HasPrefix(chunk, "[") {
					chunk = `{"candidates":[{"content":{"role":"model","parts":` + chunk + `}}]}`
				}
				response := a.Add(unmarshal[*genai.GenerateContentResponse](t, chunk))
				if !response.Partial {
					t.Errorf("chunk %d is not partial", i)
				}
			}
			got := a.Close()
			if got == nil {
				t.Fatal("no aggregate")
			}
			if got.Partial || got.TurnComplete || got.Content.Role != genai.RoleModel {
				t.Errorf("partial %t, turn complete %t, role %q, want none, none, model", got.Partial, got.TurnComplete, got.Content.Role)
			}
			if got.ErrorCode != test.errorCode {
				t.Errorf("error code %q, want %q", got.ErrorCode, test.errorCode)
			}
			if parts := marshal(t, got.Content.Parts); !equalJSON(t, parts, test.want) {
				t.Errorf("parts\ngot  %s\nwant %s", parts, test.want)
			}
		})
	}
}

func TestAggregateOfNothing(t *testing.T) {
	if got := new(gemini.Aggregator).Close(); got != nil {
		t.Errorf("got %+v, want nil", got)
	}
}

func TestAggregateSharesNoContentWithPartials(t *testing.T) {
	var a gemini.Aggregator
	partial := a.Add(unmarshal[*genai.GenerateContentResponse](t,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}}]}}]}`))
	partial.Content.Parts[0].FunctionCall.Args["a"] = "changed"
	if got := a.Close().Calls()[0].Args["a"]; got != 1.0 {
		t.Errorf("argument is %v, want 1", got)
	}
}

func TestAggregateCarriesMetadata(t *testing.T) {
	var a gemini.Aggregator
	for _, chunk := range []string{
		`{"candidates":[{"content":{"parts":[{"text":"a"}]},"groundingMetadata":{"webSearchQueries":["q"]},"citationMetadata":{"citations":[{"uri":"u"}]}}],"usageMetadata":{"totalTokenCount":1}}`,
		`{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":2}}`,
		`{}`,
	} {
		a.Add(unmarshal[*genai.GenerateContentResponse](t, chunk))
	}
	got := marshal(t, a.Close())
	const want = `{"content":{"role":"model","parts":[{"text":"ab"}]},"finishReason":"STOP","usageMetadata":{"totalTokenCount":2},
		"groundingMetadata":{"webSearchQueries":["q"]},"citationMetadata":{"citations":[{"uri":"u"}]}}`
	if !equalJSON(t, got, want) {
		t.Errorf("aggregate\ngot  %s\nwant %s", got, want)
	}
}

// A path of any length must leave arguments that can still be encoded.
func TestAggregateBoundsPaths(t *testing.T) {
	var a gemini.Aggregator
	a.Add(&genai.GenerateContentResponse{Candidates: []*genai.Candidate{{Content: &genai.Content{Parts: []*genai.Part{{
		FunctionCall: &genai.FunctionCall{Name: "f", PartialArgs: []*genai.PartialArg{
			{JsonPath: strings.Repeat("a.", 1<<20) + "a", StringValue: "x"},
		}},
	}}}}}})
	depth := 0
	var at any = a.Close().Calls()[0].Args
	for {
		inner, ok := at.(map[string]any)
		if !ok {
			break
		}
		depth++
		for _, at = range inner {
		}
	}
	if depth != 64 || at != "x" {
		t.Errorf("value %v at depth %d, want x at 64", at, depth)
	}
}

// The vectors are recorded runs of ADK's own aggregator.
func TestAggregateVectors(t *testing.T) {
	files, err := filepath.Glob("../../testdata/conformance/vectors/aggregate_*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 8 {
		t.Fatalf("%d vectors, want at least 8", len(files))
	}
	type response struct {
		AfterChunk   any             `json:"after_chunk"`
		Content      json.RawMessage `json:"content,omitempty"`
		Partial      bool            `json:"partial,omitempty"`
		TurnComplete bool            `json:"turn_complete,omitempty"`
		FinishReason string          `json:"finish_reason,omitempty"`
		Usage        json.RawMessage `json:"usage,omitempty"`
		ErrorCode    string          `json:"error_code,omitempty"`
		ErrorMessage string          `json:"error_message,omitempty"`
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			vector := unmarshal[struct {
				Kind   string
				Chunks []*genai.GenerateContentResponse
				Expect struct{ Responses json.RawMessage }
			}](t, string(data))
			if vector.Kind != "stream_aggregation" {
				t.Fatalf("kind is %q", vector.Kind)
			}
			var a gemini.Aggregator
			got := []response{}
			record := func(after any, r *session.Response) {
				if r == nil {
					return
				}
				out := response{
					AfterChunk: after, Partial: r.Partial, TurnComplete: r.TurnComplete,
					FinishReason: string(r.FinishReason), ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage,
				}
				if r.Content != nil {
					out.Content = json.RawMessage(marshal(t, r.Content))
				}
				if r.Usage != nil {
					out.Usage = json.RawMessage(marshal(t, r.Usage))
				}
				got = append(got, out)
			}
			for i, chunk := range vector.Chunks {
				record(i, a.Add(chunk))
			}
			record("close", a.Close())
			if got, want := marshal(t, got), string(vector.Expect.Responses); !equalJSON(t, got, want) {
				t.Errorf("responses\ngot  %s\nwant %s", got, want)
			}
		})
	}
}

func unmarshal[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// equalJSON compares documents whose numbers must be spelled alike.
func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	decode := func(text string) (v any) {
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}
