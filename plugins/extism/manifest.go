// Package extism makes plugins of plain Extism plugins: modules that use Extism's
// imports and know nothing of this host. Of Extism's Go SDK it takes the type of
// the manifest and nothing else; [host.Engine] runs what it makes.
//
// [host.Engine]: https://pkg.go.dev/github.com/sandboxd/sandboxd/host#Engine
package extism

import (
	"errors"
	"fmt"

	sdk "github.com/extism/go-sdk"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// MaxManifestBytes bounds a manifest in JSON. A module inside it is base64.
const MaxManifestBytes = 64 << 20

// A document is an Extism manifest in JSON, as far as one is taken here.
type document struct {
	Wasm []struct {
		Data []byte `json:"data,omitempty"`
		Path string `json:"path,omitempty"`
		URL  string `json:"url,omitempty"`
		Hash string `json:"hash,omitempty"`
		Name string `json:"name,omitempty"`
	} `json:"wasm"`
	Memory *struct {
		MaxPages             uint32 `json:"max_pages,omitempty"`
		MaxHTTPResponseBytes *int64 `json:"max_http_response_bytes,omitempty"`
		MaxVarBytes          *int64 `json:"max_var_bytes,omitempty"`
	} `json:"memory,omitempty"`
	Config       map[string]string `json:"config,omitempty"`
	AllowedHosts []string          `json:"allowed_hosts,omitempty"`
	AllowedPaths map[string]string `json:"allowed_paths,omitempty"`
	TimeoutMS    uint64            `json:"timeout_ms,omitempty"`
}

// Parse reads an Extism manifest in JSON. Unlike the SDKs of Extism it refuses
// members that it does not know and members that are there twice, because a
// misspelt limit is no limit. What a manifest may say is for [Import] to judge.
func Parse(data []byte) (sdk.Manifest, error) {
	var m sdk.Manifest
	if len(data) > MaxManifestBytes {
		return m, fmt.Errorf("extism manifest: %d bytes exceed %d", len(data), MaxManifestBytes)
	}
	var d document
	if err := abi.Decode(data, &d); err != nil {
		return m, fmt.Errorf("extism manifest: %w", err)
	}
	for i, w := range d.Wasm {
		set := 0
		for _, there := range []bool{len(w.Data) > 0, w.Path != "", w.URL != ""} {
			if there {
				set++
			}
		}
		switch {
		case set != 1:
			return m, fmt.Errorf("extism manifest: wasm[%d]: want one of data and path", i)
		case w.URL != "":
			m.Wasm = append(m.Wasm, sdk.WasmUrl{Url: w.URL, Hash: w.Hash, Name: w.Name})
		case w.Path != "":
			m.Wasm = append(m.Wasm, sdk.WasmFile{Path: w.Path, Hash: w.Hash, Name: w.Name})
		default:
			m.Wasm = append(m.Wasm, sdk.WasmData{Data: w.Data, Hash: w.Hash, Name: w.Name})
		}
	}
	// As in Extism, a bound that is not there is -1: the host's own.
	m.Memory = &sdk.ManifestMemory{MaxHttpResponseBytes: -1, MaxVarBytes: -1}
	if d.Memory != nil {
		m.Memory.MaxPages = d.Memory.MaxPages
		for _, bound := range []struct{ to, from *int64 }{
			{&m.Memory.MaxHttpResponseBytes, d.Memory.MaxHTTPResponseBytes}, {&m.Memory.MaxVarBytes, d.Memory.MaxVarBytes},
		} {
			if bound.from == nil {
				continue
			}
			if *bound.from < -1 {
				return m, errors.New("extism manifest: memory: a bound is negative")
			}
			*bound.to = *bound.from
		}
	}
	m.Config, m.AllowedHosts, m.AllowedPaths, m.Timeout = d.Config, d.AllowedHosts, d.AllowedPaths, d.TimeoutMS
	return m, nil
}
