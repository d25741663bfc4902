package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An inspection is all that can be told of a module without giving it anything.
type inspection struct {
	Format   int           `json:"format"`
	File     string        `json:"file"`
	Digest   string        `json:"digest"`
	Bytes    int           `json:"bytes"`
	Manifest *abi.Manifest `json:"manifest,omitempty"` // absent if there is none that can be read
	Wants    []want        `json:"wants"`
	Limits   *limitPair    `json:"limits,omitempty"`
	Module   *structure    `json:"module,omitempty"` // absent if the bytes are no module
	Verdicts []verdict     `json:"verdicts"`
}

// A want is one capability that a module asks for.
type want struct {
	Capability string `json:"capability"` // canonical, or as written if it is none
	Words      string `json:"words,omitempty"`
	Wide       bool   `json:"wide,omitempty"`
}

// A limitPair is what a module asks for and the most it can get.
type limitPair struct {
	Asks limitSet `json:"asks"`
	Most limitSet `json:"most"`
}

type limitSet struct {
	MemoryBytes int64 `json:"memory_bytes"`
	WallMS      int64 `json:"wall_ms"`
	Fuel        int64 `json:"fuel"`
	HostCalls   int   `json:"host_calls"`
	OutputBytes int64 `json:"output_bytes"`
	HTTPBytes   int64 `json:"http_bytes"`
	VarBytes    int64 `json:"var_bytes"`
}

// A structure is what the binary declares.
type structure struct {
	Imports     []host.Import `json:"imports"` // each once
	Exports     []string      `json:"exports"`
	Functions   int           `json:"functions"` // with a body
	CodeBytes   int           `json:"code_bytes"`
	Largest     int           `json:"largest_function_bytes"` // instructions of one function
	Nesting     int           `json:"nesting"`                // blocks inside each other, in one function
	Locals      int           `json:"locals"`                 // of one function, without parameters
	Data        int           `json:"data_segments"`
	DataBytes   int           `json:"data_bytes"`
	Elements    int           `json:"element_segments"`
	Globals     int           `json:"globals"` // without imported ones
	TableLength int64         `json:"table_entries"`
	MemoryBytes int64         `json:"memory_bytes"` // that an instance begins with
	Start       bool          `json:"start"`        // has a start function
	Initialize  bool          `json:"initialize"`   // exports _initialize
}

// inspect looks at a module and judges it in each of the roles.
func inspect(ctx context.Context, engine *host.Engine, name string, wasm []byte, roles []role) (*inspection, error) {
	sum := host.Digest(sha256.Sum256(wasm))
	r := &inspection{Format: 1, File: name, Digest: sum.String(), Bytes: len(wasm), Wants: []want{}}
	if bin, err := wasmbin.Decode(wasm); err == nil {
		r.Module = structureOf(bin)
		if sections := bin.Custom(abi.ManifestSection); len(sections) == 1 {
			if m, err := abi.ParseManifest(sections[0]); err == nil {
				r.Manifest, r.Wants, r.Limits = m, wantsOf(m), limitsOf(m)
			}
		}
	}
	module, err := engine.Load(ctx, wasm)
	refused, isRefused := errors.AsType[*host.RejectError](err)
	if err != nil && !isRefused {
		return nil, err
	}
	if isRefused && r.Module != nil && r.Manifest == nil {
		refused.Reasons = append(refused.Reasons, invalid(ctx, engine, wasm, refused.Reasons)...)
	}
	for _, as := range roles {
		if isRefused {
			r.Verdicts = append(r.Verdicts, verdict{As: as, Reasons: rejectReasons(wasm, refused.Reasons)})
			continue
		}
		r.Verdicts = append(r.Verdicts, judge(ctx, module, as))
	}
	return r, nil
}

// invalid returns the reasons that the engine has against the code of a module
// whose manifest cannot be read. It is asked last, and only about a module that is
// lawful otherwise: so the module gets a manifest for the occasion.
func invalid(ctx context.Context, engine *host.Engine, wasm []byte, known []host.Reason) []host.Reason {
	for _, r := range known {
		if r.Code != abi.ModuleABI {
			return nil
		}
	}
	bin, err := wasmbin.Decode(wasm)
	if err != nil {
		return nil
	}
	manifest := &abi.Manifest{ABI: abi.Version, Name: "unnamed", Version: "0", Tools: []abi.Tool{{Name: "export"}}}
	for _, x := range bin.Exports {
		if t, ok := bin.FuncType(x.Index); x.Kind == wasmbin.Func && ok && len(t.Params) == 0 && len(t.Results) <= 1 {
			manifest.Tools[0].Export = x.Name
		}
	}
	section, err := manifest.Encode()
	if err != nil {
		return nil // no export that could be called, for which there is a reason
	}
	packed, err := wasmbin.SetCustom(wasm, abi.ManifestSection, section)
	if err != nil {
		return nil
	}
	var more []host.Reason
	_, err = engine.Load(ctx, packed)
	if refused, ok := errors.AsType[*host.RejectError](err); ok {
		for _, r := range refused.Reasons {
			if r.Code == abi.ModuleMalformed {
				more = append(more, r)
			}
		}
	}
	return more
}

func wantsOf(m *abi.Manifest) []want {
	all := []want{}
	for _, line := range m.Requests {
		c, err := capability.Parse(line)
		if err != nil {
			all = append(all, want{Capability: line, Words: "cannot be read"})
			continue
		}
		all = append(all, want{Capability: c.String(), Words: c.Words(), Wide: c.Wide()})
	}
	return all
}

// limitsOf returns what calls of a module's tools are limited to, or those of its
// guards and hooks if it has no tool.
func limitsOf(m *abi.Manifest) *limitPair {
	kind := abi.KindTool
	if len(m.Tools) == 0 {
		kind = abi.KindGuard
	}
	most := host.DefaultLimits(kind)
	asks := most.Narrow(host.Asked(m.Limits))
	set := func(l host.Limits) limitSet {
		return limitSet{l.MemoryBytes, l.Wall.Milliseconds(), l.Fuel, l.HostCalls, l.OutputBytes, l.HTTPBytes, l.VarBytes}
	}
	return &limitPair{set(asks), set(most)}
}

func structureOf(bin *wasmbin.Module) *structure {
	s := &structure{Functions: len(bin.Functions), Data: bin.Data, Elements: bin.Elements, Globals: len(bin.Globals), Start: bin.Start,
		Imports: []host.Import{}, Exports: []string{}}
	for _, body := range bin.Bodies() {
		s.Largest = max(s.Largest, body.End-body.Code)
		s.Locals = max(s.Locals, body.Count)
		s.Nesting = max(s.Nesting, nesting(body))
	}
	for _, i := range bin.Imports {
		name := i.Name
		if i.Kind != wasmbin.Func {
			name = fmt.Sprintf("%s (%s)", i.Name, i.Kind)
		}
		if imp := (host.Import{Module: i.Module, Name: name}); !slices.Contains(s.Imports, imp) {
			s.Imports = append(s.Imports, imp)
		}
	}
	for _, x := range bin.Exports {
		s.Exports = append(s.Exports, x.Name)
		s.Initialize = s.Initialize || x.Kind == wasmbin.Func && x.Name == abi.ExportInitialize
	}
	for _, t := range bin.Tables {
		s.TableLength += int64(t.Min)
	}
	for _, m := range bin.Memories {
		s.MemoryBytes += int64(m.Min) << 16
	}
	const code, data = 10, 11 // section ids
	for _, sec := range bin.Sections {
		switch sec.ID {
		case code:
			s.CodeBytes += sec.End - sec.Body
		case data:
			s.DataBytes += sec.End - sec.Body
		}
	}
	return s
}

// nesting returns how many blocks of a function are inside each other at most, as
// far as its code can be read.
func nesting(body wasmbin.Body) int {
	depth, most := 0, 0
	for code := body.Instructions(); code.Next(); {
		switch code.Instruction().Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			depth++
			most = max(most, depth)
		case wasmbin.OpEnd:
			depth--
		}
	}
	return most
}
