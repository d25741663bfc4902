package gemini_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/gemini"
)

func TestAPIErrors(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   gemini.APIError
	}{
		{"quota", 429, `{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}`,
			gemini.APIError{Status: 429, Message: "Resource has been exhausted (e.g. check quota)."}},
		{"overloaded", 503, `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`,
			gemini.APIError{Status: 503, Message: "The model is overloaded."}},
		{"key in the message", 400, `{"error":{"code":400,"message":"API key ` + apiKey + ` not valid.","status":"INVALID_ARGUMENT"}}`,
			gemini.APIError{Status: 400, Message: "API key [API key] not valid."}},
		{"a page", 502, "<html>\nBad \x1b[31mGateway " + apiKey,
			gemini.APIError{Status: 502, Message: "<html> Bad  [31mGateway [API key]"}},
		{"nothing", 500, ``, gemini.APIError{Status: 500}},
		{"redirect", 307, ``, gemini.APIError{Status: 307}},
	}
	for _, test := range tests {
		for _, stream := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				asked := 0
				model := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
					asked++
					w.Header().Set("Location", "/elsewhere")
					answer(test.status, test.body)(w, r)
				})
				_, err := collect(t, model.Generate(t.Context(), hello(), stream))
				got, ok := errors.AsType[*gemini.APIError](err)
				if !ok {
					t.Fatalf("error %v, want an APIError", err)
				}
				if *got != test.want {
					t.Errorf("got  %+v\nwant %+v", *got, test.want)
				}
				if want := "gemini model m-1: " + test.want.Error(); err.Error() != want {
					t.Errorf("text\ngot  %s\nwant %s", err, want)
				}
				if asked != 1 {
					t.Errorf("asked %d times, want once", asked)
				}
			})
		}
	}
}

func TestAPIErrorInsideStream(t *testing.T) {
	model := serve(t, "", answerStream(
		`{"candidates":[{"content":{"parts":[{"text":"one"}]}}]}`,
		`{"error":{"code":503,"message":"gone","status":"UNAVAILABLE"}}`,
		`{"candidates":[{"content":{"parts":[{"text":"two"}]}}]}`,
	))
	got, err := collect(t, model.Generate(t.Context(), hello(), true))
	if e, ok := errors.AsType[*gemini.APIError](err); !ok || *e != (gemini.APIError{Status: 503, Message: "gone"}) {
		t.Errorf("error %v", err)
	}
	if len(got) != 1 || !strings.Contains(got[0], "one") { // and no aggregate
		t.Errorf("responses %s, want one partial", got)
	}
}

func TestLongMessageIsCut(t *testing.T) {
	model := serve(t, "", answer(http.StatusBadGateway, strings.Repeat("é", 5000)))
	_, err := collect(t, model.Generate(t.Context(), hello(), false))
	got, ok := errors.AsType[*gemini.APIError](err)
	if !ok || len(got.Message) > 2048 || strings.Trim(got.Message, "é") != "…" {
		t.Errorf("error %v", err)
	}
}

// No reply may end the process, whatever it holds.
func TestMalformedReplies(t *testing.T) {
	for _, body := range []string{
		`{"candidates":"x"}`,
		`{"candidates":[null]}`,
		`{"candidates":[{"citationMetadata":1}]}`,
		`{"candidates":[{"content":7}]}`,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1e999}}}]}}]}`,
		`[]`,
		`{`,
	} {
		for _, stream := range []bool{false, true} {
			handler := answer(http.StatusOK, body)
			if stream {
				handler = answerStream(body)
			}
			got, err := collect(t, serve(t, "", handler).Generate(t.Context(), hello(), stream))
			if err == nil || !strings.HasPrefix(err.Error(), "gemini model m-1: ") {
				t.Errorf("%s: stream %t: got %s, %v, want an error of the model", body, stream, got, err)
			}
		}
	}
}

// A panic of the consumer is its own.
func TestConsumerPanics(t *testing.T) {
	model := serve(t, "", answerStream(`{"candidates":[{"content":{"parts":[{"text":"one"}]}}]}`))
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("recovered %v, want mine", p)
		}
	}()
	for range model.Generate(t.Context(), hello(), true) {
		panic("mine")
	}
}

func TestRefusedRequests(t *testing.T) {
	tests := []struct {
		name string
		req  *flow.Request
		want string
	}{
		{"name with path", &flow.Request{Model: "../v1/files"}, `gemini model "../v1/files": name has ".."`},
		{"name with query", &flow.Request{Model: "m?key=1"}, `gemini model "m?key=1": name has '?', want letters, digits and -._/@`},
		{"HTTP options", &flow.Request{Config: &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{BaseURL: "http://elsewhere"}}},
			"gemini model m-1: request has HTTP options"},
		{"contents that cannot be encoded", &flow.Request{Contents: []*genai.Content{{Parts: []*genai.Part{{
			FunctionCall: &genai.FunctionCall{Name: "f", Args: map[string]any{"f": func() {}}}}}}}},
			"gemini model m-1: contents: json: unsupported type: func()"},
		{"config that cannot be encoded", &flow.Request{Config: &genai.GenerateContentConfig{ResponseJsonSchema: func() {}}},
			"gemini model m-1: config: json: unsupported type: func()"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			model := serve(t, "", func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
			if _, err := collect(t, model.Generate(t.Context(), test.req, false)); err == nil || err.Error() != test.want {
				t.Errorf("error\ngot  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestRefusedConfigs(t *testing.T) {
	tests := []struct {
		name   string
		config gemini.Config
		want   string
	}{
		{"no name", gemini.Config{APIKey: apiKey}, "gemini model: name is empty"},
		{"no key", gemini.Config{Name: "m"}, "gemini model m: API key is empty"},
		{"backend", gemini.Config{Name: "m", APIKey: apiKey, Backend: "x"}, `gemini model m: backend "x" is none of "gemini_api", "vertex_ai"`},
		{"scheme", gemini.Config{Name: "m", APIKey: apiKey, BaseURL: "ftp://h"}, `gemini model m: base URL: scheme "ftp" is none of https, http`},
		{"host", gemini.Config{Name: "m", APIKey: apiKey, BaseURL: "https:///x"}, "gemini model m: base URL: no host"},
		{"query", gemini.Config{Name: "m", APIKey: apiKey, BaseURL: "https://h?key=x"}, "gemini model m: base URL: user, query and fragment are not allowed"},
		{"no URL", gemini.Config{Name: "m", APIKey: apiKey, BaseURL: "https://u:p@h:x"}, "gemini model m: base URL: not a URL"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			// What genai would take from the environment has no say.
			t.Setenv("GEMINI_API_KEY", "from-environment")
			if _, err := gemini.New(t.Context(), test.config); err == nil || err.Error() != test.want {
				t.Errorf("error\ngot  %v\nwant %s", err, test.want)
			}
		})
	}
}
