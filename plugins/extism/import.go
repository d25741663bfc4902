package extism

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	sdk "github.com/extism/go-sdk"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Import returns the module of an Extism manifest and the manifest that it gets
// here, which is not yet packed into it.
//
// The module is the only one, as data, or as a path with its hash: what a path
// names may change. A hash is checked wherever there is one. read reads a path.
//
// With a mapping, that says what the plugin offers. Without one, the plugin has the
// given name, and each export that Extism can call and that can be the name of a
// tool is a raw tool without a schema; exports of toolchains (_start, asyncify_stop_unwind
// and their like) are none. It asks for log and clock if the module imports them.
//
// allowed_hosts become requests of every method over http and https on their
// default ports: a name, *.NAME for all names below, or * for every name. Other
// patterns are refused, because a * of Extism also covers dots. max_pages becomes a
// limit of twice as much memory, since Extism counts the guest's and its blocks
// apart; max_http_response_bytes bounds bodies of requests, too; and 0 bytes of
// answers or variables become 1. Where a mapping has limits,
// the lower ones hold; where it has a value of config, that does. allowed_paths,
// URLs and several modules are refused.
//
// A command, which exports _start and nothing that can be a tool, is refused with [ErrCommand],
// unless a mapping names [abi.ExportStart] as the export of a raw tool.
//
// Neither m nor mapping is changed. Data is shared with m. An error about the
// module itself is one of [wasmbin.Decode], with which the module is returned: there may be
// more against it, which [host.Engine.Load] tells.
//
// [host.Engine.Load]: https://pkg.go.dev/github.com/sandboxd/sandboxd/host#Engine.Load
func Import(m sdk.Manifest, name string, mapping *abi.Manifest, read func(path string) ([]byte, error)) ([]byte, *abi.Manifest, error) {
	wasm, err := module(m, read)
	if err != nil {
		return nil, nil, err
	}
	out := &abi.Manifest{}
	if mapping != nil {
		*out = *mapping
		out.Requests = slices.Clone(mapping.Requests)
	} else {
		if out, err = offered(wasm); err != nil {
			if _, refused := errors.AsType[wasmbin.Errors](err); !refused {
				wasm = nil
			}
			return wasm, nil, err
		}
		out.Name = name
	}
	if len(m.AllowedPaths) > 0 {
		return nil, nil, errors.New("extism manifest: allowed_paths: plugins have no files here; offer them as artifacts")
	}
	for _, host := range m.AllowedHosts {
		lines, err := requests(host)
		if err != nil {
			return nil, nil, err
		}
		for _, line := range lines {
			if !slices.Contains(out.Requests, line) {
				out.Requests = append(out.Requests, line)
			}
		}
	}
	limits(&out.Limits, m)
	config := maps.Clone(m.Config)
	if config == nil {
		config = map[string]string{}
	}
	maps.Copy(config, out.Config)
	if out.Config = config; len(config) == 0 {
		out.Config = nil
	}
	if err := out.Validate(); err != nil {
		return nil, nil, err
	}
	return wasm, out, nil
}

// module returns the bytes of the one module.
func module(m sdk.Manifest, read func(path string) ([]byte, error)) ([]byte, error) {
	if len(m.Wasm) != 1 {
		return nil, fmt.Errorf("extism manifest: %d modules in wasm: want 1, they cannot be linked here", len(m.Wasm))
	}
	var wasm []byte
	var hash string
	switch w := m.Wasm[0].(type) {
	case sdk.WasmData:
		wasm, hash = w.Data, w.Hash
	case sdk.WasmFile:
		if hash = w.Hash; hash == "" {
			return nil, fmt.Errorf("extism manifest: wasm[0]: %s: hash is missing: add the SHA-256 of the file", w.Path)
		}
		var err error
		if wasm, err = read(w.Path); err != nil {
			return nil, err
		}
	case sdk.WasmUrl:
		return nil, fmt.Errorf("extism manifest: wasm[0]: url %s: nothing is fetched; name a file with path and hash", w.Url)
	default:
		return nil, fmt.Errorf("extism manifest: wasm[0]: %T: want data or a path", w)
	}
	if hash == "" {
		return wasm, nil
	}
	if sum := sha256.Sum256(wasm); !strings.EqualFold(hash, hex.EncodeToString(sum[:])) {
		return nil, &HashError{Want: hash, Have: hex.EncodeToString(sum[:])}
	}
	return wasm, nil
}

// A HashError reports a module that is not the one that the manifest names.
type HashError struct {
	Want, Have string // SHA-256 in hexadecimal: of the manifest, of the module
}

// Error names the beginnings of both.
func (e *HashError) Error() string {
	short := func(s string) string { return s[:min(len(s), 12)] }
	return fmt.Sprintf("digest mismatch: extism manifest sha256:%s, module sha256:%s", short(e.Want), short(e.Have))
}

// offered makes a tool of each export that can be one, and asks for the log and
// the clock if the module imports them: without the clock a wall clock stands
// still, which some runtimes watch to sleep.
func offered(wasm []byte) (*abi.Manifest, error) {
	bin, err := wasmbin.Decode(wasm)
	if err != nil {
		return nil, err
	}
	m := &abi.Manifest{ABI: abi.Version, Version: "0.0.0"}
	imported := uint32(0)
	for _, i := range bin.Imports {
		if i.Kind == wasmbin.Func {
			imported++
		}
		switch {
		case i.Module == abi.ImportExtism && strings.HasPrefix(i.Name, "log_") && !slices.Contains(m.Requests, "log"):
			m.Requests = append(m.Requests, "log")
		case i.Module == abi.ImportWASI && i.Name == "clock_time_get" && !slices.Contains(m.Requests, "clock"):
			m.Requests = append(m.Requests, "clock")
		}
	}
	for _, x := range bin.Exports {
		t, ok := bin.FuncType(x.Index)
		called := x.Kind == wasmbin.Func && x.Index >= imported && ok && len(t.Params) == 0 &&
			(len(t.Results) == 0 || len(t.Results) == 1 && (t.Results[0] == wasmbin.I32 || t.Results[0] == wasmbin.I64))
		if called && !strings.HasPrefix(x.Name, "asyncify_") && abi.ValidName(x.Name) == nil {
			m.Tools = append(m.Tools, abi.Tool{Name: x.Name, Export: x.Name, Output: json.RawMessage("{}"), Raw: true}) // JSON or text
		}
	}
	if _, command := bin.Export(abi.ExportStart); command && len(m.Tools) == 0 {
		return nil, ErrCommand
	}
	if len(m.Tools) == 0 {
		return nil, ErrNoTool
	}
	slices.SortFunc(m.Tools, func(a, b abi.Tool) int { return strings.Compare(a.Name, b.Name) })
	return m, nil
}

// Why a module without a mapping is refused.
var (
	ErrNoTool  = errors.New("no tool: no export takes nothing, returns nothing or a code, and can be the name of a tool")
	ErrCommand = errors.New("command module: exports _start and no tool")
)

// methods are all that can be granted.
const methods = "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS"

// requests returns the capabilities that an entry of allowed_hosts asks for.
func requests(pattern string) ([]string, error) {
	host := pattern
	switch {
	case pattern == "*":
		host = "**"
	case strings.HasPrefix(pattern, "*."):
		host = "*" + pattern
	}
	var lines []string
	for _, scheme := range []string{"", "http://"} {
		c, err := capability.Parse("http " + methods + " " + scheme + host)
		if err != nil { // what has private addresses only is granted with that word
			c, err = capability.Parse("http " + methods + " private " + scheme + host)
		}
		if err != nil || strings.Contains(strings.TrimLeft(host, "*"), "*") || strings.ContainsAny(pattern, ":/") {
			return nil, fmt.Errorf("extism manifest: allowed_hosts: %q: want a host name, *.NAME, * or an address; "+
				"ask for anything else with requests in a mapping", pattern)
		}
		lines = append(lines, c.String())
	}
	return lines, nil
}

// limits lowers l to what the manifest asks.
func limits(l *abi.Limits, m sdk.Manifest) {
	lower := func(to *int64, n int64) {
		if *to == 0 || n < *to {
			*to = n
		}
	}
	if m.Timeout > 0 {
		lower(&l.WallMS, int64(min(m.Timeout, math.MaxInt64)))
	}
	if m.Memory == nil {
		return
	}
	if m.Memory.MaxPages > 0 {
		lower(&l.MemoryBytes, 2*int64(m.Memory.MaxPages)<<16)
	}
	if n := m.Memory.MaxHttpResponseBytes; n >= 0 {
		lower(&l.HTTPBytes, max(n, 1))
	}
	if n := m.Memory.MaxVarBytes; n >= 0 {
		lower(&l.VarBytes, max(n, 1))
	}
}
