package gemini

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
)

// Config says which model to ask, where, and as whom.
type Config struct {
	Name    string       // of the model, such as "gemini-2.5-flash"; required
	APIKey  string       // required; sent as a header, never part of an error
	BaseURL string       // http or https, without query; default the backend's public address
	Backend flow.Backend // default flow.GeminiAPI; flow.VertexAI takes an API key (express mode)
}

// A Model asks Gemini. It is safe for concurrent use.
type Model struct {
	name    string
	backend flow.Backend
	client  *genai.Client
	key     *strings.Replacer // strikes the API key out of a text
}

// New returns a model for config. It does not use the network. The errors are
// those of a config that cannot work.
func New(ctx context.Context, config Config) (*Model, error) {
	return newModel(ctx, config, maxReplyBytes)
}

func newModel(ctx context.Context, config Config, maxReply int64) (*Model, error) {
	if err := checkName(config.Name); err != nil {
		return nil, err
	}
	if config.APIKey == "" {
		return nil, fmt.Errorf("gemini model %s: API key is empty", config.Name)
	}
	client := &genai.ClientConfig{
		APIKey:     config.APIKey,
		HTTPClient: newHTTPClient(maxReply),
	}
	backend := cmp.Or(config.Backend, flow.GeminiAPI)
	switch backend {
	case flow.GeminiAPI:
		client.Backend = genai.BackendGeminiAPI
		client.HTTPOptions.BaseURL = "https://generativelanguage.googleapis.com/"
	case flow.VertexAI:
		client.Backend = genai.BackendVertexAI
		client.HTTPOptions.BaseURL = "https://aiplatform.googleapis.com/"
	default:
		return nil, fmt.Errorf("gemini model %s: backend %q is none of %q, %q", config.Name, backend, flow.GeminiAPI, flow.VertexAI)
	}
	// The address is always set: genai would take a missing one from the environment.
	if config.BaseURL != "" {
		if err := checkBaseURL(config.BaseURL); err != nil {
			return nil, fmt.Errorf("gemini model %s: base URL: %w", config.Name, err)
		}
		client.HTTPOptions.BaseURL = config.BaseURL
	}
	key := strings.NewReplacer(config.APIKey, "[API key]")
	c, err := genai.NewClient(ctx, client)
	if err != nil { // genai prints its whole config, key included
		return nil, fmt.Errorf("gemini model %s: %s", config.Name, key.Replace(err.Error()))
	}
	return &Model{name: config.Name, backend: backend, client: c, key: key}, nil
}

// Name returns the configured name of the model.
func (m *Model) Name() string { return m.name }

// Backend returns the service that is asked.
func (m *Model) Backend() flow.Backend { return m.backend }

// Generate asks the model that req names, or the configured one, as [flow.Model]
// says. Its errors wrap an [*APIError] if the service answered with one, and the
// context's cause if ctx ended. A consumer that stops early closes the stream.
func (m *Model) Generate(ctx context.Context, req *flow.Request, stream bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		name := cmp.Or(req.Model, m.name)
		config, err := prepare(name, req)
		if err != nil {
			yield(nil, err)
			return
		}
		if stream {
			m.stream(ctx, name, req.Contents, config, yield)
			return
		}
		var reply *genai.GenerateContentResponse
		err = decoding(func() (err error) {
			if reply, err = m.client.Models.GenerateContent(ctx, name, req.Contents, config); err == nil {
				restore(reply)
			}
			return err
		})
		if err != nil {
			yield(nil, m.failure(ctx, name, err))
			return
		}
		yield(toResponse(reply), nil)
	}
}

func (m *Model) stream(ctx context.Context, name string, contents []*genai.Content, config *genai.GenerateContentConfig,
	yield func(*session.Response, error) bool) {
	// Pulling keeps a panic of the decoder apart from one of the consumer.
	next, stop := iter.Pull2(m.client.Models.GenerateContentStream(ctx, name, contents, config))
	defer stop()
	var whole Aggregator
	for {
		var chunk *genai.GenerateContentResponse
		var more bool
		err := decoding(func() (err error) {
			if chunk, err, more = next(); err == nil && more {
				whole.exact = restore(chunk)
			}
			return err
		})
		if err != nil {
			yield(nil, m.failure(ctx, name, err))
			return
		}
		if !more {
			break
		}
		if !yield(whole.Add(chunk), nil) {
			return
		}
	}
	if response := whole.Close(); response != nil {
		yield(response, nil)
	}
}

// prepare returns the config to send with req: a copy, because genai writes to
// what it is given.
func prepare(name string, req *flow.Request) (*genai.GenerateContentConfig, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	var config genai.GenerateContentConfig
	if req.Config != nil {
		config = *req.Config
	}
	if config.HTTPOptions != nil {
		return nil, fmt.Errorf("gemini model %s: request has HTTP options", name)
	}
	// genai would send an empty request in place of one that cannot be encoded.
	if _, err := json.Marshal(req.Contents); err != nil {
		return nil, fmt.Errorf("gemini model %s: contents: %w", name, err)
	}
	if _, err := json.Marshal(config); err != nil {
		return nil, fmt.Errorf("gemini model %s: config: %w", name, err)
	}
	if config.SystemInstruction != nil {
		instruction := *config.SystemInstruction
		config.SystemInstruction = &instruction
	}
	config.HTTPOptions = &genai.HTTPOptions{
		ExtrasRequestProvider: func(body map[string]any) map[string]any {
			restoreNumbers(body, req.Contents)
			return body
		},
	}
	return &config, nil
}

// restoreNumbers puts the arguments and results of contents back into the body
// that genai made of them, in which every number is a float64.
func restoreNumbers(body map[string]any, contents []*genai.Content) {
	encoded, _ := body["contents"].([]map[string]any)
	for i, content := range encoded {
		parts, _ := content["parts"].([]map[string]any)
		for j, part := range parts {
			original := contents[i].Parts[j]
			if call, ok := part["functionCall"].(map[string]any); ok && len(original.FunctionCall.Args) > 0 {
				call["args"] = original.FunctionCall.Args
			}
			if response, ok := part["functionResponse"].(map[string]any); ok && len(original.FunctionResponse.Response) > 0 {
				response["response"] = original.FunctionResponse.Response
			}
		}
	}
}

// decoding calls f, which decodes a reply. genai asserts the types that it finds
// in one and panics on others; no reply may end the process.
func decoding(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reply has an unexpected shape: %v", p)
		}
	}()
	return f()
}

// checkName keeps a name from reaching into the rest of the URL.
func checkName(name string) error {
	if name == "" {
		return errors.New("gemini model: name is empty")
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-._/@", r):
		default:
			return fmt.Errorf("gemini model %q: name has %q, want letters, digits and -._/@", name, r)
		}
	}
	if strings.Contains(name, "..") {
		return fmt.Errorf("gemini model %q: name has \"..\"", name)
	}
	return nil
}

// checkBaseURL leaves the URL itself out of its errors: it may hold a password.
func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("scheme %q is none of https, http", u.Scheme)
	case u.Host == "":
		return errors.New("no host")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return errors.New("user, query and fragment are not allowed")
	}
	return nil
}
