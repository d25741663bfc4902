package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/flow/mcp"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// asServer makes the test binary a server: with 1 on its standard streams, with http on the
// loopback interface, at an address that it prints.
const asServer = "MCP_TEST_SERVER"

func TestMain(m *testing.M) {
	switch os.Getenv(asServer) { // which ends with its input
	case "1":
		_ = newServer(nil).Run(context.Background(), &sdk.StdioTransport{})
		return
	case "http":
		web := httptest.NewServer(httpHandler(nil, nil))
		fmt.Println(web.URL)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	before := goleak.IgnoreCurrent()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(before); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// A waiter says when the tool "wait" has begun and how its context ended, for
// which it waits unless it is released.
type waiter struct {
	begun   chan struct{}
	ended   chan error
	release chan struct{}
}

func newWaiter() *waiter {
	return &waiter{make(chan struct{}), make(chan error, 1), make(chan struct{})}
}

// longText is how many bytes the tool "long" answers.
const longText = 10 << 20

// digits has numbers that no float64 keeps, and texts that look like JSON.
const digits = `{"html":"<&>\u2028","id":9007199254740993,"price":0.12345678901234567891,"rates":[1.10,-0.0,1e2],"text":"{\"n\":1}"}`

// newServer returns an honest server, but for what its tools answer.
func newServer(w *waiter) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name, output string, handle func(context.Context, map[string]any) (*sdk.CallToolResult, error)) {
		t := &sdk.Tool{Name: name, Title: "A title", Description: "Does " + name + ".",
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
			InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)}
		if output != "" {
			t.OutputSchema = json.RawMessage(output)
		}
		s.AddTool(t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var args map[string]any
			if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
				return nil, err
			}
			return handle(ctx, args)
		})
	}
	text := func(s string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
	}
	add("echo", "", func(_ context.Context, args map[string]any) (*sdk.CallToolResult, error) {
		s, _ := args["text"].(string)
		return text(s), nil
	})
	add("environ", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return text(strings.Join(os.Environ(), "\n")), nil
	})
	add("silent", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) { return &sdk.CallToolResult{}, nil })
	add("refuse", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true}, nil
	})
	add("long", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return text(strings.Repeat("x", longText)), nil
	})
	add("huge", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return text(strings.Repeat("x", 17<<20)), nil
	})
	add("die", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	add("liar", `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`, func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`{"n":"many"}`)}, nil
	})
	add("count", `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`, func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`{"n":7}`)}, nil
	})
	add("exact", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		r := text("a summary")
		r.StructuredContent = json.RawMessage(digits)
		return r, nil
	})
	add("exact_alone", `{"type":"object","properties":{"price":{"type":"number"}}}`, func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(digits)}, nil
	})
	add("exact_text", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`"1.10"`)}, nil
	})
	add("too_large", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`{"n":1e400}`)}, nil
	})
	add("twice", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`{"n":1,"n":2}`)}, nil
	})
	add("none", "", func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
		r := text("text")
		r.StructuredContent = json.RawMessage(`null`)
		return r, nil
	})
	add("wait", "", func(ctx context.Context, _ map[string]any) (*sdk.CallToolResult, error) {
		w.begun <- struct{}{}
		var err error
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-w.release:
		}
		w.ended <- err
		return &sdk.CallToolResult{}, err
	})
	return s
}

// stdio returns a transport to this binary as a server.
func stdio(t *testing.T) mcp.Transport {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcp.Stdio(mcp.Command{Path: path, Env: []string{asServer + "=1"}, Stderr: os.Stderr})
}

// overHTTP returns a transport to a server on the loopback interface.
func overHTTP(t *testing.T, w *waiter, o *sdk.StreamableHTTPOptions) mcp.Transport {
	t.Helper()
	web := httptest.NewServer(httpHandler(w, o))
	t.Cleanup(web.Close)
	return mcp.HTTP(web.URL, nil)
}

func httpHandler(w *waiter, o *sdk.StreamableHTTPOptions) http.Handler {
	s := newServer(w)
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, o)
}

// overHTTPToProcess returns a transport to a server on the loopback interface that is a process of
// its own.
func overHTTPToProcess(t *testing.T) mcp.Transport {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(path)
	server.Env, server.Stderr = []string{asServer + "=http"}, os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return mcp.HTTP(strings.TrimSpace(address), nil)
}

// stream returns a transport to a server in this process.
func stream(t *testing.T, s *sdk.Server) mcp.Transport {
	t.Helper()
	here, there := net.Pipe()
	served, err := s.Connect(context.Background(), &sdk.IOTransport{Reader: there, Writer: there}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = served.Close() })
	t.Cleanup(func() { _ = here.Close() })
	return mcp.Stream(here)
}

func open(t *testing.T, tr mcp.Transport, cfg mcp.Config) *mcp.Toolset {
	t.Helper()
	set := mcp.New("test", tr, cfg)
	t.Cleanup(func() { _ = set.Close() })
	return set
}

// A talk is an agent with a toolset, in one session.
type talk struct {
	Guards    []flow.Guard
	artifacts flow.Artifacts
	ctx       context.Context
	set       flow.Toolset
	model     *flowtest.Model
}

// do runs calls in one step of one run, and returns the responses as JSON and the
// errors of the run.
func (k talk) do(t *testing.T, calls ...*genai.FunctionCall) ([]string, error) {
	t.Helper()
	if k.ctx == nil {
		k.ctx = t.Context()
	}
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel() // a connection does not end with the run that made it
	for i, c := range calls {
		c.ID = fmt.Sprintf("c%d", i)
	}
	model := &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Call(calls...), flowtest.Say("done")}}
	if len(calls) == 0 {
		model.Steps = model.Steps[1:]
	}
	if k.model != nil {
		model.OnRequest = k.model.OnRequest
	}
	store := session.NewMemory()
	key := session.Key{App: "app", User: "ada", ID: "s"}
	if _, err := store.Create(ctx, key, nil); err != nil {
		t.Fatal(err)
	}
	r, err := flow.NewRunner(&flow.Agent{Name: "agent", Model: model, Toolsets: []flow.Toolset{k.set}}, store, flow.Config{Guards: k.Guards, Artifacts: k.artifacts})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var errs []error
	for ev, err := range r.Run(ctx, key, flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser)}) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if ev.Content == nil {
			continue
		}
		for _, p := range ev.Content.Parts {
			if p.FunctionResponse != nil {
				data, err := abi.Marshal(p.FunctionResponse.Response)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(data))
			}
		}
	}
	return got, errors.Join(errs...)
}

func call(name string) *genai.FunctionCall { return &genai.FunctionCall{Name: name} }

func echo(text string) *genai.FunctionCall {
	return &genai.FunctionCall{Name: "echo", Args: map[string]any{"text": text}}
}

// says checks that a run has these responses and no error.
func (k talk) says(t *testing.T, want []string, calls ...*genai.FunctionCall) {
	t.Helper()
	got, err := k.do(t, calls...)
	if err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("responses\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Both real transports carry several runs over one connection.
func TestTransports(t *testing.T) {
	for name, tr := range map[string]mcp.Transport{
		"stdio":     stdio(t),
		"http":      overHTTP(t, nil, nil),
		"http json": overHTTP(t, nil, &sdk.StreamableHTTPOptions{JSONResponse: true}),
		"process":   overHTTPToProcess(t),
		"stateless": overHTTP(t, nil, &sdk.StreamableHTTPOptions{Stateless: true}),
	} {
		t.Run(name, func(t *testing.T) {
			k := talk{set: open(t, tr, mcp.Config{})}
			k.says(t, []string{`{"output":"one"}`, `{"output":"two"}`}, echo("one"), echo("two"))
			k.says(t, []string{`{"output":""}`, `{"error":"Tool execution failed."}`, `{"output":{"n":7}}`}, call("silent"), call("refuse"), call("count"))
		})
	}
}

// A process gets the environment it is given and no more.
func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET", "hunter2")
	talk{set: open(t, stdio(t), mcp.Config{})}.says(t, []string{`{"output":"` + asServer + `=1"}`}, call("environ"))
}

// A server that ends in a call fails that call, and the next run has a new one.
func TestServerDies(t *testing.T) {
	k := talk{set: open(t, stdio(t), mcp.Config{})}
	got, err := k.do(t, call("die"))
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], `{"error":"failed to call MCP tool \"die\" with err: calling \"tools/call\": `) {
		t.Errorf("responses %q, error %v", got, err)
	}
	k.says(t, []string{`{"output":"again"}`}, echo("again"))
}

// What does not fit is an error or an artifact: a long result is kept whole if
// there is where, and a huge message costs the connection; the next run has a new one.
func TestHugeResult(t *testing.T) {
	for name, tr := range map[string]mcp.Transport{
		"stdio":     stdio(t),
		"http":      overHTTP(t, nil, nil),
		"http json": overHTTP(t, nil, &sdk.StreamableHTTPOptions{JSONResponse: true}),
		"process":   overHTTPToProcess(t),
	} {
		t.Run(name, func(t *testing.T) {
			k := talk{set: open(t, tr, mcp.Config{})}
			k.says(t, []string{`{"error":"guest_output_too_large: the tool gave an answer that is too long"}`}, call("long"))
			k.artifacts = flow.NewMemoryArtifacts()
			kept, err := k.do(t, call("long"))
			key := session.Key{App: "app", User: "ada", ID: "s"}
			names, err2 := k.artifacts.List(t.Context(), key)
			if err != nil || err2 != nil || len(names) != 1 || len(kept) != 1 || len(kept[0]) > 4096 || !strings.Contains(kept[0], names[0]) {
				t.Fatalf("responses %.500q, errors %v, %v, artifacts %q", kept, err, err2, names)
			}
			if whole, err := k.artifacts.Load(t.Context(), key, names[0], 0); err != nil || string(whole.InlineData.Data) != `{"output":"`+strings.Repeat("x", longText)+`"}` {
				t.Errorf("the artifact is not the result: %v", err)
			}
			got, err := k.do(t, call("huge"))
			if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], `{"error":"failed to call MCP tool`) {
				t.Errorf("responses %.200q, error %v", got, err)
			}
			k.says(t, []string{`{"output":"still here"}`}, echo("still here"))
		})
	}
}

// A run that ends takes its call along, and the server hears of it.
func TestCancel(t *testing.T) {
	for _, name := range []string{"stream", "http"} {
		t.Run(name, func(t *testing.T) {
			w := newWaiter()
			var tr mcp.Transport
			if name == "http" {
				tr = overHTTP(t, w, nil)
			} else {
				tr = stream(t, newServer(w))
			}
			ctx, cancel := context.WithCancel(t.Context())
			k := talk{set: open(t, tr, mcp.Config{}), ctx: ctx}
			var wg sync.WaitGroup
			wg.Go(func() {
				<-w.begun
				cancel()
			})
			_, _ = k.do(t, call("wait")) // must return
			wg.Wait()
			if err := <-w.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the call on the server ended with %v", err)
			}
			talk{set: k.set}.says(t, []string{`{"output":"later"}`}, echo("later"))
		})
	}
}

// A toolset that is closed fails the calls that run, whether the server hears of it
// or not.
func TestCloseInACall(t *testing.T) {
	for _, name := range []string{"stream", "http"} {
		t.Run(name, func(t *testing.T) {
			w := newWaiter()
			var tr mcp.Transport
			if name == "http" {
				tr = overHTTP(t, w, nil)
			} else {
				tr = stream(t, newServer(w))
			}
			t.Cleanup(func() { close(w.release) }) // before the server is closed
			set := open(t, tr, mcp.Config{})
			var wg sync.WaitGroup
			wg.Go(func() {
				<-w.begun
				_ = set.Close() // it may tell of the call it broke off
			})
			got, err := talk{set: set}.do(t, call("wait"))
			wg.Wait()
			if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], `{"error":"failed to call MCP tool`) {
				t.Errorf("responses %q, error %v", got, err)
			}
		})
	}
}

// Calls pass guards and the check of arguments before the server sees them.
func TestOneDoor(t *testing.T) {
	s := newServer(nil)
	var reached []string
	var mu sync.Mutex
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if r, ok := req.(*sdk.CallToolRequest); ok {
				mu.Lock()
				reached = append(reached, r.Params.Name)
				mu.Unlock()
			}
			return next(ctx, method, req)
		}
	})
	guard := &flowtest.Guard{Label: "no-silence", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		v := abi.Verdict{Ruling: abi.RulingAllow}
		if q.Call.Tool == "silent" {
			v = abi.Verdict{Ruling: abi.RulingDeny, Code: "no", Reason: "not this one"}
		}
		return flowtest.Echo(q, v), nil
	}}
	k := talk{set: open(t, stream(t, s), mcp.Config{ConfirmIf: func(tool string, args map[string]any) bool {
		return tool == "echo" && args["text"] == "loud"
	}}), Guards: []flow.Guard{guard}}
	got, err := k.do(t, call("silent"), &genai.FunctionCall{Name: "echo", Args: map[string]any{"text": 7}}, echo("loud"), call("count"))
	if err != nil || len(got) != 4 {
		t.Fatalf("responses %q, error %v", got, err)
	}
	for i, want := range []string{"not this one", "text", "requires confirmation", `{"output":{"n":7}}`} {
		if !strings.Contains(got[i], want) {
			t.Errorf("response %d is %s, want %s in it", i, got[i], want)
		}
	}
	if want := []string{"count"}; !slices.Equal(reached, want) {
		t.Errorf("the server got calls of %q, want %q", reached, want)
	}
	for _, q := range guard.Asked() {
		if q.Call.Effects != abi.Once {
			t.Errorf("%s has effects %q, whatever its server hints", q.Call.Tool, q.Call.Effects)
		}
	}
}

// Structured content fits its schema, and is a strict document.
func TestLies(t *testing.T) {
	const invalid = `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`
	talk{set: open(t, stream(t, newServer(nil)), mcp.Config{})}.says(t, []string{invalid, invalid, invalid}, call("liar"), call("too_large"), call("twice"))
}

// Numbers of structured content keep their text, over every transport, whatever
// text stands beside them.
func TestDigits(t *testing.T) {
	want, err := abi.Canonical([]byte(`{"output":` + digits + `}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, tr := range map[string]mcp.Transport{
		"stream":    stream(t, newServer(nil)),
		"stdio":     stdio(t),
		"http":      overHTTP(t, nil, nil),
		"http json": overHTTP(t, nil, &sdk.StreamableHTTPOptions{JSONResponse: true}),
	} {
		t.Run(name, func(t *testing.T) {
			talk{set: open(t, tr, mcp.Config{})}.says(t, []string{string(want), string(want), `{"output":"1.10"}`, `{"output":"text"}`},
				call("exact"), call("exact_alone"), call("exact_text"), call("none"))
		})
	}
}

// Each request has schemas of its own: what is changed in one is in no other.
func TestDeclaredSchemasAreTheRequests(t *testing.T) {
	var declared []string
	k := talk{set: open(t, stream(t, newServer(nil)), mcp.Config{}), model: &flowtest.Model{OnRequest: func(req *flow.Request, _ bool) {
		for _, d := range req.Config.Tools[0].FunctionDeclarations {
			if d.Name != "count" {
				continue
			}
			both, err := json.Marshal([]any{d.ParametersJsonSchema, d.ResponseJsonSchema})
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, string(both))
			for _, s := range []any{d.ParametersJsonSchema, d.ResponseJsonSchema} {
				s.(*jsonschema.Schema).Properties["n"] = &jsonschema.Schema{Type: "string"}
				s.(*jsonschema.Schema).Required = append(s.(*jsonschema.Schema).Required[:0], "edited")
			}
		}
	}}}
	k.says(t, []string{`{"output":{"n":7}}`}, call("count"))
	if len(declared) != 2 || declared[0] != declared[1] || !strings.Contains(declared[0], `"required":["n"]`) {
		t.Errorf("declared\n%s", strings.Join(declared, "\n"))
	}
}

// listing returns a server that lists what it likes.
func listing(list func(n int) *sdk.ListToolsResult) *sdk.Server {
	s := newServer(nil)
	n := 0
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method == "tools/list" {
				n++
				return list(n), nil
			}
			return next(ctx, method, req)
		}
	})
	return s
}

// A tool that cannot be offered is left out with a warning; the others stay.
func TestLeftOut(t *testing.T) {
	object := json.RawMessage(`{"type":"object"}`)
	s := listing(func(int) *sdk.ListToolsResult {
		return &sdk.ListToolsResult{Tools: []*sdk.Tool{
			{Name: "good", InputSchema: object},
			{Name: "good", Description: "again", InputSchema: object},
			{Name: "two words", InputSchema: object},
			{Name: strings.Repeat("n", 65), InputSchema: object},
			{Name: "transfer_to_agent", InputSchema: object},
			{Name: "adk_request_confirmation", InputSchema: object},
			{Name: "sandboxd_x", InputSchema: object},
			{Name: "text_input", InputSchema: json.RawMessage(`{"type":"string"}`)},
			{Name: "no_schema", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":7}}}`)},
			{Name: "elsewhere", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}`)},
			{Name: "bad_output", InputSchema: object, OutputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"pattern":"("}}}`)},
			{Name: "last", InputSchema: object},
		}}
	})
	var log bytes.Buffer
	var offered []string
	k := talk{set: open(t, stream(t, s), mcp.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}),
		model: &flowtest.Model{OnRequest: func(req *flow.Request, _ bool) { offered = req.ExecutableTools() }}}
	k.says(t, nil)
	if want := []string{"good", "last"}; !slices.Equal(offered, want) {
		t.Errorf("offered %q, want %q", offered, want)
	}
	if n := strings.Count(log.String(), "mcp tool left out"); n != 10 {
		t.Errorf("%d warnings, want 10:\n%s", n, &log)
	}
}

// A list without end or bound fails the run.
func TestEndlessList(t *testing.T) {
	object := json.RawMessage(`{"type":"object"}`)
	for _, c := range []struct {
		name string
		list func(n int) *sdk.ListToolsResult
		want string
	}{
		{"pages", func(n int) *sdk.ListToolsResult {
			return &sdk.ListToolsResult{NextCursor: fmt.Sprint(n)}
		}, "list of tools: more than 512 pages"},
		{"tools", func(n int) *sdk.ListToolsResult {
			r := &sdk.ListToolsResult{NextCursor: fmt.Sprint(n)}
			for i := range 100 {
				r.Tools = append(r.Tools, &sdk.Tool{Name: fmt.Sprintf("t%d_%d", n, i), InputSchema: object})
			}
			return r
		}, "list of tools: more than 512"},
		{"bytes", func(int) *sdk.ListToolsResult {
			return &sdk.ListToolsResult{Tools: []*sdk.Tool{{Name: "t", Description: strings.Repeat("d", 1<<20), InputSchema: object}}}
		}, "list of tools: more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := talk{set: open(t, stream(t, listing(c.list)), mcp.Config{})}.do(t)
			if err == nil || !strings.HasSuffix(err.Error(), "mcp server test: "+c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// The server is asked once per run, and not at all once the toolset is closed.
func TestListedOncePerRun(t *testing.T) {
	lists := 0
	s := listing(func(n int) *sdk.ListToolsResult {
		lists = n
		return &sdk.ListToolsResult{Tools: []*sdk.Tool{{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}}}
	})
	set := mcp.New("test", stream(t, s), mcp.Config{})
	k := talk{set: set}
	for run := range 2 {
		k.says(t, []string{`{"output":"hi"}`}, echo("hi"))
		if lists != run+1 {
			t.Errorf("listed %d times in %d runs", lists, run+1)
		}
	}
	if err := errors.Join(set.Close(), set.Close()); err != nil {
		t.Error(err)
	}
	if _, err := k.do(t); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("error %v of a closed toolset", err)
	}
}

// A server that cannot be reached fails the run, and nothing is left behind.
func TestUnreachable(t *testing.T) {
	for name, tr := range map[string]mcp.Transport{
		"no such program": mcp.Stdio(mcp.Command{Path: "/no/such/program"}),
		"no server":       mcp.HTTP("http://127.0.0.1:1/", nil),
	} {
		if _, err := (talk{set: open(t, tr, mcp.Config{})}).do(t); err == nil || !strings.Contains(err.Error(), "mcp server test: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
