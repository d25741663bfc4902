package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/plugins/extism"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// The oracle is Extism's own Go SDK: a plugin that imports only what we link and
// can be called must be accepted here and do what it does there.

// theirs are the plugins in the SDK's module, by file: the exports that are compared
// with their inputs, or why the plugin is refused. What has no tool but _start is refused
// as a command, until a mapping names that.
var theirs = map[string]struct {
	refused string
	exports []string
	inputs  []string
	config  map[string]string
}{
	"count_vowels_std.wasm": {exports: commands, inputs: []string{"", "hello world", strings.Repeat("aeiou ", 1000)}},
	"exit.wasm":             {exports: commands, config: map[string]string{"code": "7"}},
	"lib.wasm":              {exports: commands},
	"std_command.wasm":      {exports: commands, inputs: []string{"", "ben", strings.Repeat("x", 70_000)}},

	"alloc.wasm":        {exports: []string{"run_test"}},
	"config.wasm":       {exports: []string{"run_test"}, config: map[string]string{"thing": "hello"}},
	"count_vowels.wasm": {exports: []string{"count_vowels"}, inputs: []string{"", "hello world", strings.Repeat("aeiou ", 1000), "\xff\x00é"}},
	"fail.wasm":         {exports: []string{"run_test"}},
	"hello.wasm":        {exports: []string{"run_test"}, inputs: []string{"", "input"}},
	"http.wasm":         {exports: []string{"run_test"}},
	"http_headers.wasm": {exports: []string{"http_get"}, inputs: []string{
		`{"url":"https://jsonplaceholder.typicode.com/todos/1"}`, `{"url":"https://extism.org","method":"GET"}`, `{}`, "", "no JSON"}},
	"input_offset.wasm": {exports: []string{"input_offset_length"}, inputs: []string{"", "12", strings.Repeat("x", 70_000)}},
	"log.wasm":          {exports: []string{"run_test"}},
	"noop.wasm":         {exports: []string{"run_test"}, inputs: []string{"", "x"}},
	"replace.wasm":      {exports: []string{"run_test"}, inputs: []string{"", "The bird is the word", strings.Repeat("bird ", 2000)}},
	"sleep.wasm":        {exports: []string{"run_test"}, config: map[string]string{"duration": "0"}},
	"var.wasm":          {exports: []string{"run_test"}},

	"fs.wasm":             {refused: "imports wasi_snapshot_preview1.path_open: not a host function"},
	"fs_std.wasm":         {refused: "imports wasi_snapshot_preview1.path_filestat_get: not a host function"},
	"hello_haskell.wasm":  {refused: "imports wasi_snapshot_preview1.path_create_directory: not a host function"},
	"println.wasm":        {refused: "imports wasi_snapshot_preview1.path_open: not a host function"},
	"read_write.wasm":     {refused: "imports wasi_snapshot_preview1.path_open: not a host function"},
	"host.wasm":           {refused: "imports extism:host/user.mult: not a host function"},
	"host_memory.wasm":    {refused: "imports host.to_upper: not a host function"},
	"host_multiple.wasm":  {refused: "imports extism:host/user.hostGreenMessage: not a host function"},
	"main.wasm":           {refused: "imports lib.capitalize: not a host function"},
	"nested.c.instr.wasm": {refused: "imports dylibso_observe.instrument_enter: not a host function"}, // and its locals are too many
}

var commands = []string{abi.ExportStart}

// command is a mapping that offers _start.
var command = &abi.Manifest{ABI: abi.Version, Name: "plugin", Version: "1", Requests: []string{"clock"},
	Tools: []abi.Tool{{Name: "start", Export: abi.ExportStart, Raw: true, Output: []byte("{}")}}}

// answers are what both egresses answer with, by URL.
var answers = map[string]string{
	"https://jsonplaceholder.typicode.com/todos/1": `{"userId":1,"id":1,"title":"delectus aut autem","completed":false}`,
	"https://extism.org":                           strings.Repeat("page ", 20_000),
	"https://www.pages.example/ski":                "Fresh snow on every northern slope today",
}

// RoundTrip answers for the oracle, which uses the client of the process.
func (a recorded) RoundTrip(r *http.Request) (*http.Response, error) {
	body, ok := a[r.URL.String()]
	if !ok {
		return nil, fmt.Errorf("no answer for %s", r.URL)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/x"}, "X-Two": {"a", "b"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

type recorded map[string]string

// cassette writes the same answers for us.
func (a recorded) cassette(t *testing.T) *host.Egress {
	t.Helper()
	var exchanges []string
	for _, url := range slices.Sorted(maps.Keys(a)) {
		exchanges = append(exchanges, fmt.Sprintf(`{"request":{"url":%q},"response":{"status":200,"headers":{"content-type":"text/x","x-two":"a,b"},"text":%q}}`, url, a[url]))
	}
	file := filepath.Join(t.TempDir(), "tape.json")
	if err := os.WriteFile(file, []byte(`{"format":1,"exchanges":[`+strings.Join(exchanges, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tape, err := host.OpenCassettes(file)
	if err != nil {
		t.Fatal(err)
	}
	return host.NewEgress(tape)
}

// A pair runs plugins in both hosts.
type pair struct {
	engine *host.Engine
	egress *host.Egress
}

func newPair(t *testing.T) *pair {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	client := http.DefaultClient
	http.DefaultClient = &http.Client{Transport: recorded(answers)}
	t.Cleanup(func() { http.DefaultClient = client })
	return &pair{engine, recorded(answers).cassette(t)}
}

// load imports a plugin as an operator would, with a mapping or without.
func (p *pair) load(t *testing.T, m sdk.Manifest, mapping *abi.Manifest) (*host.Module, error) {
	t.Helper()
	wasm, manifest, err := extism.Import(m, "plugin", mapping, os.ReadFile)
	if _, ok := errors.AsType[wasmbin.Errors](err); ok {
		_, err = p.engine.Load(t.Context(), wasm) // which tells all reasons
	}
	if err != nil {
		return nil, err
	}
	section, err := manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if wasm, err = wasmbin.SetCustom(wasm, abi.ManifestSection, section); err != nil {
		t.Fatal(err)
	}
	return p.engine.Load(t.Context(), wasm)
}

// An outcome is how a call ended, in our words.
type outcome struct {
	code   abi.Code
	output string // of a call that succeeded
	text   string // of an error that the plugin set
}

func (p *pair) ours(t *testing.T, module *host.Module, m sdk.Manifest, export, input string, lines ...string) outcome {
	t.Helper()
	grants, err := capability.ParseSet(lines)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := module.Call(t.Context(), &host.Call{Export: export, Input: []byte(input), Grants: grants, Config: m.Config, Access: host.Access{Egress: p.egress}})
	if e, ok := errors.AsType[*host.GuestError](err); ok {
		o := outcome{code: e.Code}
		if e.Code == abi.GuestError && !strings.HasPrefix(e.Message, "return code") {
			o.text = e.Message
		}
		return o
	}
	if err != nil {
		t.Fatal(err)
	}
	return outcome{code: abi.OK, output: string(reply.Output)}
}

// An oracle is a plugin in Extism's SDK.
type oracle struct{ compiled *sdk.CompiledPlugin }

func newOracle(t *testing.T, m sdk.Manifest) *oracle {
	t.Helper()
	m.AllowedHosts = []string{"*"}
	compiled, err := sdk.NewCompiledPlugin(context.Background(), m, sdk.PluginConfig{EnableWasi: true, EnableHttpResponseHeaders: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := compiled.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &oracle{compiled}
}

// call makes a call in an instance of its own. There an empty output and a return
// code are no failures; here they are, so they are translated.
func (o *oracle) call(t *testing.T, export, input string) outcome {
	t.Helper()
	ctx := context.Background()
	plugin, err := o.compiled.Instance(ctx, sdk.PluginInstanceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close(ctx)
	rc, output, err := plugin.Call(export, []byte(input))
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		if rc != exit.ExitCode() {
			t.Errorf("return code %d, exit code %d", rc, exit.ExitCode())
		}
		return outcome{code: abi.GuestError, text: fmt.Sprintf("exit code %d", rc)}
	}
	switch {
	case err != nil && strings.Contains(err.Error(), "wasm stack trace"):
		return outcome{code: abi.GuestTrap}
	case err != nil:
		return outcome{code: abi.GuestError, text: err.Error()}
	case rc != 0:
		return outcome{code: abi.GuestError}
	case len(output) == 0:
		return outcome{code: abi.GuestOutputInvalid}
	}
	return outcome{code: abi.OK, output: string(output)}
}

// agrees compares calls of an export in both hosts. It returns how they ended.
func (p *pair) agrees(t *testing.T, module *host.Module, o *oracle, m sdk.Manifest, export string, inputs ...string) []outcome {
	t.Helper()
	if !slices.ContainsFunc(module.Manifest().Tools, func(tool abi.Tool) bool { return tool.Export == export }) {
		t.Fatalf("export %s is no tool", export)
	}
	var all []outcome
	for _, input := range inputs {
		got, want := p.ours(t, module, m, export, input, "http GET **"), o.call(t, export, input)
		if got != want {
			t.Errorf("%s(%.40q):\nours   %.200q\ntheirs %.200q", export, input, got, want)
		}
		all = append(all, got)
	}
	return all
}

func goSDK(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(out))
}

// Every plugin in the SDK's module is accepted and agrees, or is refused for the
// reason in the table. (The module has one more file, which is the SDK's kernel.)
func TestPluginsOfExtism(t *testing.T) {
	p := newPair(t)
	left := maps.Clone(theirs)
	files, err := filepath.Glob(filepath.Join(goSDK(t), "wasm", "*.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		plugin, known := left[name]
		delete(left, name)
		t.Run(name, func(t *testing.T) {
			if !known {
				t.Fatal("not in the table")
			}
			wasm, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m := sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmData{Data: wasm}}, Config: plugin.config}
			module, err := p.load(t, m, nil)
			if slices.Equal(plugin.exports, commands) {
				if !errors.Is(err, extism.ErrCommand) {
					t.Errorf("without a mapping: error %v, want %v", err, extism.ErrCommand)
				}
				module, err = p.load(t, m, command)
			}
			if plugin.refused != "" {
				if err == nil || !strings.Contains(err.Error(), plugin.refused) {
					t.Errorf("error %v, want %q", err, plugin.refused)
				}
				return
			}
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			for _, export := range plugin.exports {
				p.agrees(t, module, newOracle(t, m), m, export, append(plugin.inputs, "plain")...)
			}
		})
	}
	for name := range left {
		t.Errorf("%s: in the table and not in the module", name)
	}
}

// A command that leaves with an exit code ends as there, whatever the code, and so does the next call.
func TestExitsOfExtism(t *testing.T) {
	p := newPair(t)
	wasm, err := os.ReadFile(filepath.Join(goSDK(t), "wasm", "exit.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]outcome{
		"0":  {code: abi.GuestOutputInvalid}, // a success there, without an output
		"1":  {code: abi.GuestError, text: "exit code 1"},
		"42": {code: abi.GuestError, text: "exit code 42"},
		"x":  {code: abi.GuestError, text: "exit code 1"}, // it cannot read it
	} {
		m := sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmData{Data: wasm}}, Config: map[string]string{"code": code}}
		module, err := p.load(t, m, command)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range p.agrees(t, module, newOracle(t, m), m, abi.ExportStart, "", "again") {
			if got != want {
				t.Errorf("code %s: %+v, want %+v", code, got, want)
			}
		}
	}
}

// A plugin built with Extism's PDK for Go agrees, too, except where its request is
// refused: to the plugin that is status 0 and no body, where Extism ends the call.
func TestPluginOfGoPDK(t *testing.T) {
	p := newPair(t)
	built, err := guestbuild.Build(t.Context(), "../examples/words/plugins/words", guestbuild.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmData{Data: built.Wasm}}, Config: map[string]string{"min_letters": "3"},
		Memory: &sdk.ManifestMemory{MaxHttpResponseBytes: -1, MaxVarBytes: -1}}
	module, err := p.load(t, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle(t, m)
	long := `{"text":"` + strings.Repeat("word ", 5000) + `"}`
	for export, inputs := range map[string][]string{
		"count": {`{"text":"one fine northern morning"}`, `{"text":"a b"}`, long, "", "no JSON", `{"text":1}`},
		"shout": {`{"text":"hi"}`, `{"text":"é\u0000"}`, long, "[]"},
		"fetch": {`{"url":"https://www.pages.example/ski"}`, `{"url":"https://extism.org"}`, "{"},
	} {
		if first := p.agrees(t, module, o, m, export, inputs...)[0]; first.code != abi.OK {
			t.Errorf("%s ended with %s %q", export, first.code, first.text)
		}
	}
	for _, c := range []struct{ url, grant string }{
		{"https://www.pages.example/ski", "log"}, {"https://www.pages.example/ski", "http POST **"},
		{"https://evil.example/", "http GET **"}, // no recorded answer
		{"no URL", "http GET **"}, {"http://169.254.169.254/", "http GET http://**"},
	} {
		got := p.ours(t, module, m, "fetch", fmt.Sprintf(`{"url":%q}`, c.url), c.grant)
		if want := (outcome{code: abi.GuestError, text: "this page cannot be read"}); got != want {
			t.Errorf("%s with %s: %+v, want %+v", c.url, c.grant, got, want)
		}
	}
	if end := o.call(t, "fetch", `{"url":"https://evil.example/"}`); end.code != abi.GuestTrap {
		t.Errorf("the oracle ends with %s now: the documents say that it ends the call", end.code)
	}
}
