package gemini

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
)

func TestReplyIsBounded(t *testing.T) {
	reply := `{"candidates":[{"content":{"parts":[{"text":"` + strings.Repeat("x", 4096) + `"}]}}]}`
	const exceeds = "gemini model m: reply exceeds limit 1024 bytes"
	tests := []struct {
		name   string
		status int
		stream bool
		body   string
		want   string
	}{
		{"unary", http.StatusOK, false, reply, exceeds},
		{"error", http.StatusBadGateway, false, reply, exceeds},
		{"stream between chunks", http.StatusOK, true, strings.Repeat("\n", 1024) + "data: " + reply, exceeds},
		{"stream within a chunk", http.StatusOK, true, "data: " + reply + "\n\n",
			"gemini model m: reply breaks off or is no JSON: unexpected end of JSON input"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			}))
			defer server.Close()
			model, err := newModel(t.Context(), Config{Name: "m", APIKey: "k", BaseURL: server.URL}, 1024)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, err := range model.Generate(t.Context(), &flow.Request{Contents: genai.Text("hello")}, test.stream) {
				if n++; err == nil || err.Error() != test.want {
					t.Errorf("error\ngot  %v\nwant %s", err, test.want)
				}
			}
			if n != 1 {
				t.Errorf("%d responses, want one error", n)
			}
		})
	}
}

// A proxy variable may not move requests, nor another variable the address: both
// would take the key along.
func TestEnvironmentMovesNothing(t *testing.T) {
	for _, name := range []string{"GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "HTTPS_PROXY"} {
		t.Setenv(name, "http://elsewhere.example")
	}
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
	t.Setenv("GOOGLE_API_KEY", "from-environment")
	for backend, address := range map[flow.Backend]string{
		"":             "https://generativelanguage.googleapis.com/",
		flow.GeminiAPI: "https://generativelanguage.googleapis.com/",
		flow.VertexAI:  "https://aiplatform.googleapis.com/",
	} {
		model, err := New(t.Context(), Config{Name: "m", APIKey: "k", Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		config := model.client.ClientConfig()
		if config.HTTPOptions.BaseURL != address || config.APIKey != "k" {
			t.Errorf("backend %q: address %s, key %s, want %s, k", backend, config.HTTPOptions.BaseURL, config.APIKey, address)
		}
		if config.HTTPClient.Transport.(bounded).base.Proxy != nil {
			t.Errorf("backend %q: requests go through a proxy", backend)
		}
		if want := cmp.Or(backend, flow.GeminiAPI); model.Backend() != want {
			t.Errorf("backend is %q, want %q", model.Backend(), want)
		}
	}
}
