package gemini_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

var (
	_ flow.Model           = (*gemini.Model)(nil)
	_ flow.BackendReporter = (*gemini.Model)(nil)
)

const apiKey = "AIza-test-key-0123456789"

// serve returns a model of a server that answers with handler.
func serve(t *testing.T, backend flow.Backend, handler http.HandlerFunc) *gemini.Model {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	model, err := gemini.New(t.Context(), gemini.Config{Name: "m-1", APIKey: apiKey, BaseURL: server.URL, Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func answerStream(chunks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, chunk := range chunks {
			fmt.Fprintf(w, "data: %s\r\n\r\n", chunk)
			w.(http.Flusher).Flush()
		}
	}
}

func hello() *flow.Request {
	return &flow.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}
}

func collect(t *testing.T, seq iter.Seq2[*session.Response, error]) ([]string, error) {
	t.Helper()
	var got []string
	for response, err := range seq {
		if err != nil {
			return got, err
		}
		got = append(got, marshal(t, response))
	}
	return got, nil
}

func TestUnary(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{
			name: "text with usage, grounding and citations",
			body: `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP",
				"groundingMetadata":{"webSearchQueries":["q"]},"citationMetadata":{"citationSources":[{"uri":"u"}]}}],
				"usageMetadata":{"promptTokenCount":5,"totalTokenCount":8},"modelVersion":"m-1-001"}`,
			want: `{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","groundingMetadata":{"webSearchQueries":["q"]},
				"citationMetadata":{"citations":[{"uri":"u"}]},"usageMetadata":{"promptTokenCount":5,"totalTokenCount":8}}`,
		},
		{
			name: "call with id and arguments",
			body: `{"candidates":[{"content":{"role":"model","parts":[
				{"functionCall":{"id":"c1","name":"pay","args":{"invoice":"INV-7","cents":8000,"rate":0.5}},"thoughtSignature":"UzE="}]},"finishReason":"STOP"}]}`,
			want: `{"content":{"role":"model","parts":[
				{"functionCall":{"id":"c1","name":"pay","args":{"invoice":"INV-7","cents":8000,"rate":0.5}},"thoughtSignature":"UzE="}]},"finishReason":"STOP"}`,
		},
		{
			name: "only the first candidate",
			body: `{"candidates":[{"content":{"parts":[{"text":"a"}]}},{"content":{"parts":[{"text":"b"}]}}]}`,
			want: `{"content":{"parts":[{"text":"a"}]}}`,
		},
		{
			name: "text cut off",
			body: `{"candidates":[{"content":{"role":"model","parts":[{"text":"half"}]},"finishReason":"MAX_TOKENS"}]}`,
			want: `{"content":{"role":"model","parts":[{"text":"half"}]},"finishReason":"MAX_TOKENS"}`,
		},
		{
			name: "nothing before the cut",
			body: `{"candidates":[{"content":{"role":"model"},"finishReason":"MAX_TOKENS"}],"usageMetadata":{"totalTokenCount":3}}`,
			want: `{"errorCode":"MAX_TOKENS","finishReason":"MAX_TOKENS","usageMetadata":{"totalTokenCount":3}}`,
		},
		{
			name: "candidate refused",
			body: `{"candidates":[{"finishReason":"SAFETY"}]}`,
			want: `{"errorCode":"SAFETY","finishReason":"SAFETY"}`,
		},
		{
			name: "stopped without a word",
			body: `{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}]}`,
			want: `{"content":{"role":"model"},"finishReason":"STOP"}`,
		},
		{
			name: "prompt refused",
			body: `{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT","blockReasonMessage":"no"},"usageMetadata":{"promptTokenCount":4}}`,
			want: `{"errorCode":"PROHIBITED_CONTENT","errorMessage":"no","usageMetadata":{"promptTokenCount":4}}`,
		},
		{
			name: "nothing",
			body: `{"usageMetadata":{"promptTokenCount":4}}`,
			want: `{"content":{"role":"model"},"usageMetadata":{"promptTokenCount":4}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			model := serve(t, "", answer(http.StatusOK, test.body))
			got, err := collect(t, model.Generate(t.Context(), hello(), false))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || !equalJSON(t, got[0], test.want) {
				t.Errorf("responses\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

// genai drops the finish message of the Gemini API and keeps that of Vertex AI.
func TestFinishMessage(t *testing.T) {
	for backend, want := range map[flow.Backend]string{
		flow.GeminiAPI: `{"errorCode":"SAFETY","finishReason":"SAFETY"}`,
		flow.VertexAI:  `{"errorCode":"SAFETY","errorMessage":"blocked","finishReason":"SAFETY"}`,
	} {
		model := serve(t, backend, answer(http.StatusOK, `{"candidates":[{"finishReason":"SAFETY","finishMessage":"blocked"}]}`))
		got, err := collect(t, model.Generate(t.Context(), hello(), false))
		if err != nil || len(got) != 1 || !equalJSON(t, got[0], want) {
			t.Errorf("%s\ngot  %s, %v\nwant %s", backend, got, err, want)
		}
	}
}

func TestStream(t *testing.T) {
	model := serve(t, flow.VertexAI, answerStream(
		`{"candidates":[{"content":{"role":"model","parts":[{"text":"let me see","thought":true}]}}]}`,
		`{"candidates":[{"content":{"role":"model","parts":[{"text":"Look"}]}}]}`,
		`{"candidates":[{"content":{"role":"model","parts":[{"text":"ing"}]}}]}`,
		`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"find","id":"c1","willContinue":true}}]}}]}`,
		`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.city","stringValue":"Os","willContinue":true}],"willContinue":true}}]}}]}`,
		`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.city","stringValue":"lo"}]}}]},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":9}}`,
	))
	want := []string{
		`{"content":{"role":"model","parts":[{"text":"let me see","thought":true}]},"partial":true}`,
		`{"content":{"role":"model","parts":[{"text":"Look"}]},"partial":true}`,
		`{"content":{"role":"model","parts":[{"text":"ing"}]},"partial":true}`,
		`{"content":{"role":"model","parts":[{"functionCall":{"name":"find","id":"c1","willContinue":true}}]},"partial":true}`,
		`{"content":{"role":"model","parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.city","stringValue":"Os","willContinue":true}],"willContinue":true}}]},"partial":true}`,
		`{"content":{"role":"model","parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.city","stringValue":"lo"}]}}]},"partial":true,"turnComplete":true,"finishReason":"STOP","usageMetadata":{"totalTokenCount":9}}`,
		`{"content":{"role":"model","parts":[{"text":"let me see","thought":true},{"text":"Looking"},{"functionCall":{"name":"find","id":"c1","args":{"city":"Oslo"}}}]},
			"finishReason":"STOP","usageMetadata":{"totalTokenCount":9}}`,
	}
	got, err := collect(t, model.Generate(t.Context(), hello(), true))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d responses, want %d: %s", len(got), len(want), got)
	}
	for i := range want {
		if !equalJSON(t, got[i], want[i]) {
			t.Errorf("response %d\ngot  %s\nwant %s", i, got[i], want[i])
		}
	}
}

func TestStreamOfNothing(t *testing.T) {
	model := serve(t, "", answerStream())
	if got, err := collect(t, model.Generate(t.Context(), hello(), true)); err != nil || len(got) > 0 {
		t.Errorf("got %s, %v, want nothing", got, err)
	}
}

func TestStreamBlockedPrompt(t *testing.T) {
	model := serve(t, "", answerStream(`{"promptFeedback":{"blockReason":"SAFETY"}}`))
	got, err := collect(t, model.Generate(t.Context(), hello(), true))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !equalJSON(t, got[0], `{"errorCode":"SAFETY","partial":true}`) ||
		!equalJSON(t, got[1], `{"errorCode":"SAFETY","content":{"role":"model"}}`) {
		t.Errorf("got %s", got)
	}
}

// The request on the wire, and what asking leaves unchanged.
func TestRequest(t *testing.T) {
	req := &flow.Request{
		Contents: []*genai.Content{
			genai.NewContentFromText("pay", genai.RoleUser),
			{Role: genai.RoleModel, Parts: []*genai.Part{{
				FunctionCall:     &genai.FunctionCall{ID: "c1", Name: "pay", Args: map[string]any{"account": json.Number("9007199254740993"), "note": "a.b"}},
				ThoughtSignature: []byte("S1"),
			}}},
			{Role: genai.RoleUser, Parts: []*genai.Part{{
				FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "pay", Response: map[string]any{"receipt": json.Number("1234567890123456789"), "sum": json.Number("1.10")}},
			}}},
		},
		Config: &genai.GenerateContentConfig{
			SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: "Pay invoices."}}},
			Temperature:       genai.Ptr[float32](0.5),
			MaxOutputTokens:   64,
			StopSequences:     []string{"END"},
			Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
				Name: "pay", Description: "Pays.",
				ParametersJsonSchema: map[string]any{"type": "object", "properties": map[string]any{"account": map[string]any{"type": "integer"}}},
			}}}},
		},
	}
	const body = `{
		"contents":[
			{"role":"user","parts":[{"text":"pay"}]},
			{"role":"model","parts":[{"functionCall":{"id":"c1","name":"pay","args":{"account":9007199254740993,"note":"a.b"}},"thoughtSignature":"UzE="}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"pay","response":{"receipt":1234567890123456789,"sum":1.10}}}]}],
		"systemInstruction":{"role":"user","parts":[{"text":"Pay invoices."}]},
		"generationConfig":{"temperature":0.5,"maxOutputTokens":64,"stopSequences":["END"]},
		"tools":[{"functionDeclarations":[{"name":"pay","description":"Pays.",
			"parametersJsonSchema":{"type":"object","properties":{"account":{"type":"integer"}}}}]}]}`
	tests := []struct {
		name    string
		backend flow.Backend
		model   string // named by the request
		stream  bool
		want    string // URL
	}{
		{name: "unary", want: "/v1beta/models/m-1:generateContent"},
		{name: "stream", stream: true, want: "/v1beta/models/m-1:streamGenerateContent?alt=sse"},
		{name: "model of the request", model: "models/m-2", want: "/v1beta/models/m-2:generateContent"},
		{name: "vertex", backend: flow.VertexAI, want: "/v1beta1/publishers/google/models/m-1:generateContent"},
	}
	before := marshal(t, req.Contents) + marshal(t, req.Config)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got *http.Request
			var gotBody []byte
			model := serve(t, test.backend, func(w http.ResponseWriter, r *http.Request) {
				got = r
				gotBody, _ = io.ReadAll(r.Body)
				answerStream()(w, r)
			})
			req.Model = test.model
			if _, err := collect(t, model.Generate(t.Context(), req, test.stream)); err != nil {
				t.Fatal(err)
			}
			if got.Method != http.MethodPost || got.URL.String() != test.want {
				t.Errorf("asked %s %s, want POST %s", got.Method, got.URL, test.want)
			}
			if key := got.Header.Get("X-Goog-Api-Key"); key != apiKey {
				t.Errorf("key is %q", key)
			}
			if !equalJSON(t, string(gotBody), body) {
				t.Errorf("body\ngot  %s\nwant %s", gotBody, body)
			}
		})
	}
	if after := marshal(t, req.Contents) + marshal(t, req.Config); after != before {
		t.Errorf("request changed\nfrom %s\nto   %s", before, after)
	}
}

// Numbers and texts in the arguments of a call are what the service sent, whole and
// in a stream, whatever they look like.
func TestArgumentsAreExact(t *testing.T) {
	const args = `{"deep":[{"n":0.10},[1E+2,-0]],"large":9007199254740993,"marked":["\u0000n1","\u0000s","\u0000"],"one":1.0,"text":"ä世\u2028 <&>"}`
	const reply = `{"candidates":[{"content":{"parts":[{"text":"\u0000n5"},{"functionCall":{"name":"f","args":%s}}]},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":7}}`
	for _, stream := range []bool{false, true} {
		handle := answer(http.StatusOK, fmt.Sprintf(reply, args))
		if stream {
			handle = answerStream(fmt.Sprintf(reply, args))
		}
		n := 0
		for response, err := range serve(t, "", handle).Generate(t.Context(), hello(), stream) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			got, err := abi.Marshal(response.Calls()[0].Args)
			want, err2 := abi.Canonical([]byte(args))
			if err != nil || err2 != nil || string(got) != string(want) || response.Content.Parts[0].Text != "\x00n5" || response.Usage.TotalTokenCount != 7 {
				t.Errorf("stream %t: %+q, want %+q (%v, %v)", stream, got, want, err, err2)
			}
		}
		if n == 0 {
			t.Errorf("stream %t: no response", stream)
		}
		handle = answer(http.StatusOK, fmt.Sprintf(reply, `{"n":1e400}`))
		if stream {
			handle = answerStream(fmt.Sprintf(reply, `{"n":1e400}`))
		}
		for response, err := range serve(t, "", handle).Generate(t.Context(), hello(), stream) {
			if err == nil || !strings.Contains(err.Error(), "1e400") {
				t.Errorf("stream %t: a number past all floats: %+v, %v", stream, response, err)
			}
		}
	}
}

// Numbers of arguments that come in pieces keep their text in the whole call; the
// pieces show no mark.
func TestStreamedArgumentsAreExact(t *testing.T) {
	const piece = `{"candidates":[{"content":{"parts":[{"functionCall":%s}]}}]}`
	chunks := []string{
		fmt.Sprintf(piece, `{"name":"pay","id":"c1","willContinue":true,"partialArgs":[{"jsonPath":"$.account","numberValue":9007199254740993}]}`),
		fmt.Sprintf(piece, `{"willContinue":true,"partialArgs":[{"jsonPath":"$.deep.price","numberValue":0.12345678901234567891},{"jsonPath":"$.deep.rate","numberValue":1.10}]}`),
		fmt.Sprintf(piece, `{"willContinue":true,"partialArgs":[{"jsonPath":"$.marked","stringValue":"\u0000n1"},{"jsonPath":"$.marked","stringValue":"\u0000s"},{"jsonPath":"$.both","stringValue":"text","numberValue":7}]}`),
		fmt.Sprintf(piece, `{"partialArgs":[{"jsonPath":"$.yes","boolValue":true},{"jsonPath":"$.no","nullValue":"NULL_VALUE"},{"jsonPath":"$.empty","stringValue":"","numberValue":-0.0}]}`),
	}
	const want = `{"account":9007199254740993,"both":"text","deep":{"price":0.12345678901234567891,"rate":1.10},"empty":-0.0,"marked":"\u0000n1\u0000s","no":null,"yes":true}`
	var pieces []*genai.PartialArg
	whole := 0
	for response, err := range serve(t, "", answerStream(chunks...)).Generate(t.Context(), hello(), true) {
		if err != nil {
			t.Fatal(err)
		}
		if response.Partial {
			pieces = append(pieces, response.Calls()[0].PartialArgs...)
			continue
		}
		whole++
		if got, err := abi.Marshal(response.Calls()[0].Args); err != nil || string(got) != want {
			t.Errorf("%+q, want %+q (%v)", got, want, err)
		}
	}
	if whole != 1 || len(pieces) != 9 {
		t.Fatalf("%d whole calls and %d pieces, want 1 and 9", whole, len(pieces))
	}
	if n := pieces[0].NumberValue; n == nil || *n != 9007199254740992 || pieces[0].StringValue != "" || pieces[3].StringValue != "\x00n1" || pieces[4].StringValue != "\x00s" {
		t.Errorf("pieces %+v, %+v, %+v: want what the service sent", pieces[0], pieces[3], pieces[4])
	}
	for response, err := range serve(t, "", answerStream(fmt.Sprintf(piece, `{"name":"f","partialArgs":[{"jsonPath":"$.n","numberValue":1e400}]}`))).Generate(t.Context(), hello(), true) {
		if err == nil || !strings.Contains(err.Error(), "1e400") {
			t.Errorf("a number past all floats: %+v, %v", response, err)
		}
	}
}

func TestConsumerStops(t *testing.T) {
	closed := make(chan struct{})
	model := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		answerStream(`{"candidates":[{"content":{"parts":[{"text":"one"}]}}]}`)(w, r)
		<-r.Context().Done() // the client has gone
		close(closed)
	})
	n := 0
	for response, err := range model.Generate(t.Context(), hello(), true) {
		if err != nil || response.Text() != "one" {
			t.Fatalf("got %+v, %v", response, err)
		}
		n++
		break
	}
	if n != 1 {
		t.Fatalf("%d responses, want 1", n)
	}
	<-closed
}

func TestCancel(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			model := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // only then the server watches the connection
				if stream {
					answerStream(`{"candidates":[{"content":{"parts":[{"text":"one"}]}}]}`)(w, r)
				} else {
					cancel(cause)
				}
				<-r.Context().Done()
			})
			var texts []string
			var got error
			for response, err := range model.Generate(ctx, hello(), stream) {
				if got = err; err == nil {
					texts = append(texts, response.Text())
					cancel(cause)
				}
			}
			if !errors.Is(got, cause) {
				t.Errorf("error %v, want %v", got, cause)
			}
			if want := strings.Repeat("one", map[bool]int{true: 1}[stream]); strings.Join(texts, "") != want {
				t.Errorf("texts %q, want %q", texts, want)
			}
		})
	}
}
