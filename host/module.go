package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Digest is the SHA-256 of a module's bytes.
type Digest [sha256.Size]byte

// String returns "sha256:" and 64 hexadecimal digits.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// Short returns "sha256:" and the first 12 digits, for people.
func (d Digest) Short() string { return "sha256:" + hex.EncodeToString(d[:6]) }

// A RejectError lists every reason found for which a module cannot be used.
type RejectError struct {
	Module  Digest
	Reasons []Reason // at least one
}

// A Reason is one reason.
type Reason struct {
	Code abi.Code `json:"code"` // module_malformed, module_limit, module_import_denied, module_abi or module_compile_timeout
	Text string   `json:"text"` // names the thing, the value and the bound
}

func (e *RejectError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "module %s:", e.Module.Short())
	for i, r := range e.Reasons {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %s: %s", r.Code, r.Text)
	}
	return b.String()
}

// A Module is compiled code with its manifest: immutable, known by its digest,
// safe for concurrent use.
type Module struct {
	engine   *Engine
	digest   Digest
	size     int
	manifest *abi.Manifest
	imports  []Import
	minimum  int64           // bytes of linear memory that an instance begins with
	entries  map[string]bool // exports that can be called
	command  bool            // a raw tool's export is abi.ExportStart
	name     string          // the digest as text
	tenant   string          // who loaded it first
	code     *code

	probe *probe // nil but for tests of the guest, see LoadProbed
}

// An Import names one function that a module imports.
type Import struct {
	Module string `json:"module"`
	Name   string `json:"name"`
}

// Digest returns the digest of the module's bytes.
func (m *Module) Digest() Digest { return m.digest }

// Size returns the number of the module's bytes.
func (m *Module) Size() int { return m.size }

// Manifest returns the module's manifest. It is shared and must not be changed.
func (m *Module) Manifest() *abi.Manifest { return m.manifest }

// Imports returns what the module imports, in its order, each once.
func (m *Module) Imports() []Import { return slices.Clone(m.imports) }

// Load checks a module, reads its manifest from the custom section
// [abi.ManifestSection] and compiles it. A module that cannot be used is a
// [*RejectError]. Loading the same bytes again returns the same module as long as somebody
// has it. Its code may leave memory meanwhile, see [Config.CodeBytes].
//
// One module is compiled at a time, in the order of the calls, in a child process with limits
// on time and memory; both waiting and compiling end with ctx. A module
// that needs more than the limits is refused with module_compile_timeout. One that
// ended the compiler is refused for a while without another try: a minute, doubled
// each time up to an hour. Modules that differ in custom sections alone,
// such as their manifests, share one compilation. Load keeps no reference to wasm.
func (e *Engine) Load(ctx context.Context, wasm []byte) (*Module, error) {
	return e.LoadFor(ctx, "", wasm)
}

// LoadFor is Load for one of several tenants, who wait for each other as little as can be: what
// is loaded waits for nobody, and those who wait have their turns one after the other, however many modules each of them loads. No
// more than 64 loads of one tenant wait; another is an [ErrQueueFull]. The tenant means nothing
// else: the same bytes are the same module for all.
func (e *Engine) LoadFor(ctx context.Context, tenant string, wasm []byte) (*Module, error) {
	m, err := e.load(ctx, tenant, bytes.Clone(wasm))
	if refused, ok := errors.AsType[*RejectError](err); ok && e.audit != nil {
		rec := audit.Record{Action: "module.reject", Target: refused.Module.String(), Module: refused.Module.String(),
			Decision: "deny", Code: string(refused.Reasons[0].Code), Why: refused.Error()}
		if sinkErr := e.audit.Append(context.WithoutCancel(ctx), rec); sinkErr != nil {
			err = errors.Join(err, fmt.Errorf("audit: %w", sinkErr))
		}
	}
	return m, err
}

func (e *Engine) load(ctx context.Context, tenant string, wasm []byte) (*Module, error) {
	digest := Digest(sha256.Sum256(wasm))
	// What is there needs no turn; what is not may be there once the turn has come.
	if m, err := e.loaded(digest); m != nil || err != nil {
		return m, err
	}
	if err := e.compile.take(ctx, tenant); err != nil {
		return nil, err
	}
	defer e.compile.give()
	if m, err := e.loaded(digest); m != nil || err != nil {
		return m, err
	}
	m, bin, why := e.check(digest, wasm)
	// That a module has not been packed yet is no news beside what is wrong with it.
	if m != nil && (len(why) == 0 || len(bin.Custom(abi.ManifestSection)) > 0) {
		why = append(why, m.readManifest(bin)...)
	}
	if len(why) > 0 {
		return nil, &RejectError{digest, why}
	}
	// Rewriting gives the same bytes for the same code.
	from := Digest(sha256.Sum256(compilable(bin)))
	m.tenant = tenant
	if m.code = e.sharedCode(from); m.code == nil {
		made, err := m.compile(ctx, bin)
		if err != nil {
			return nil, err
		}
		m.code.whole = isWhole(bin)
		if err := e.newCode(ctx, from, m.code, made); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.modules == nil {
		return nil, errClosed
	}
	e.hold(m)
	return m, nil
}

// Describe runs the export [abi.ExportDescribe] of a module, with no grants and
// the limits of a tool, and returns the manifest it answers. This is how a
// manifest is made; the module needs none for it. Errors are [*RejectError] and
// [*GuestError].
func (e *Engine) Describe(ctx context.Context, wasm []byte) (*abi.Manifest, error) {
	return e.DescribeFor(ctx, "", wasm)
}

// DescribeFor is Describe for one of several tenants, who wait for their turns to compile as those of
// [Engine.LoadFor] do, and in the same line.
func (e *Engine) DescribeFor(ctx context.Context, tenant string, wasm []byte) (*abi.Manifest, error) {
	wasm = bytes.Clone(wasm)
	digest := Digest(sha256.Sum256(wasm))
	m, bin, why := e.check(digest, wasm)
	if len(why) > 0 {
		return nil, &RejectError{digest, why}
	}
	if !m.entries[abi.ExportDescribe] {
		return nil, &RejectError{digest, []Reason{{abi.ModuleABI,
			fmt.Sprintf("no export %q that takes nothing and returns nothing or a code", abi.ExportDescribe)}}}
	}
	if err := e.compileAlone(ctx, tenant, m, bin); err != nil {
		return nil, err
	}
	defer func() {
		e.pool.forget(m.code)
		m.code.compiled.Close(context.WithoutCancel(ctx))
	}()
	reply, err := m.Call(ctx, &Call{Kind: abi.KindTool, Export: abi.ExportDescribe})
	if err != nil {
		return nil, err
	}
	manifest, err := abi.ParseManifest(reply.Output)
	if err != nil {
		return nil, &RejectError{digest, reasons(abi.ModuleABI, err)}
	}
	return manifest, nil
}

// compileAlone compiles code that a module has to itself.
func (e *Engine) compileAlone(ctx context.Context, tenant string, m *Module, bin *wasmbin.Module) (err error) {
	if err := e.compile.take(ctx, tenant); err != nil {
		return err
	}
	defer e.compile.give()
	if _, err := e.loaded(m.digest); err != nil {
		return err
	}
	m.tenant = tenant
	made, err := m.compile(ctx, bin)
	if err != nil {
		return err
	}
	m.code.compiled = made.compiled
	return nil
}

func (e *Engine) loaded(d Digest) (*Module, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.modules == nil {
		return nil, errClosed
	}
	return e.modules[d].Value(), nil
}

// check decodes a module within the budget and compares it with the contract,
// as far as that needs no manifest. What is malformed is no module, and there
// are reasons for that alone; what is past a cap is looked at all the same.
func (e *Engine) check(d Digest, wasm []byte) (*Module, *wasmbin.Module, []Reason) {
	bin, err := wasmbin.Decode(wasm)
	if bin == nil {
		return nil, nil, structural(err)
	}
	m := &Module{engine: e, digest: d, name: d.String(), size: len(wasm), entries: map[string]bool{}}
	why := append(append(structural(err), structural(bin.CheckCode())...), m.checkImports(bin)...)
	if len(bin.Memories) == 1 {
		m.minimum = int64(bin.Memories[0].Min) << 16
	}
	if m.minimum > toolLimits.MemoryBytes {
		why = append(why, Reason{abi.ModuleLimit,
			fmt.Sprintf("memory begins with %d bytes, limit %d", m.minimum, toolLimits.MemoryBytes)})
	}
	imported := uint32(bin.Imported(wasmbin.Func))
	for _, x := range bin.Exports {
		if strings.HasPrefix(x.Name, reserved) {
			why = append(why, Reason{abi.ModuleABI, fmt.Sprintf("export %q: names that begin with %q are the host's", printable(x.Name, 80), reserved)})
		}
		if x.Kind != wasmbin.Func {
			continue
		}
		if strings.ContainsFunc(x.Name, abi.Hidden) {
			why = append(why, Reason{abi.ModuleABI, fmt.Sprintf("export %q: has characters that cannot be seen", printable(x.Name, 80))})
		}
		if bin.Partial() { // it may be a function that was not read
			continue
		}
		t, ok := bin.FuncType(x.Index)
		if !ok {
			why = append(why, Reason{abi.ModuleMalformed, fmt.Sprintf("export %q: no function %d", printable(x.Name, 80), x.Index)})
			continue
		}
		m.entries[x.Name] = x.Index >= imported && len(t.Params) == 0 &&
			(len(t.Results) == 0 || len(t.Results) == 1 && (t.Results[0] == wasmbin.I32 || t.Results[0] == wasmbin.I64))
	}
	for _, x := range []string{abi.ExportInitialize, abi.ExportWarmUp} {
		if good, ok := m.entries[x]; ok && !good {
			why = append(why, Reason{abi.ModuleABI, "export " + x + ": want no parameters and no result but a code"})
		}
	}
	return m, bin, why
}

// reserved is how names begin that a module may only import, and only those that
// the host has.
const reserved = "sandboxd:"

// structural returns the reasons that package wasmbin gives.
func structural(err error) []Reason {
	var why []Reason
	errs, _ := errors.AsType[wasmbin.Errors](err)
	for _, err := range errs {
		code := abi.ModuleMalformed
		if err.Limit {
			code = abi.ModuleLimit
		}
		why = append(why, Reason{code, err.Error()})
	}
	return why
}

// checkImports compares the imports with what the host offers.
func (m *Module) checkImports(bin *wasmbin.Module) []Reason {
	var why []Reason
	for _, i := range bin.Imports {
		name := printable(i.Module, 80) + "." + printable(i.Name, 80)
		if i.Kind != wasmbin.Func {
			why = append(why, Reason{abi.ModuleImportDenied, fmt.Sprintf("imports %s: a %s cannot be imported", name, i.Kind)})
			continue
		}
		f, ok := lookup(i.Module, i.Name)
		if !ok {
			if i.Module == "env" && strings.HasPrefix(i.Name, "extism_") {
				why = append(why, Reason{abi.ModuleABI, fmt.Sprintf("imports %s: Extism's ABI before 1.0", name)})
			} else {
				why = append(why, Reason{abi.ModuleImportDenied, fmt.Sprintf("imports %s: not a host function", name)})
			}
			continue
		}
		want := f.funcType()
		if t, ok := m.importType(bin, i); !ok && !bin.Partial() || ok && !t.Equal(want) {
			why = append(why, Reason{abi.ModuleABI, fmt.Sprintf("imports %s: type is %s, want %s", name, t, want)})
		}
		if f.traits&onMemory != 0 && len(bin.Memories) == 0 {
			why = append(why, Reason{abi.ModuleABI, fmt.Sprintf("imports %s: the module has no memory", name)})
		}
		if imp := (Import{i.Module, i.Name}); !slices.Contains(m.imports, imp) {
			m.imports = append(m.imports, imp)
		}
	}
	return why
}

func (m *Module) importType(bin *wasmbin.Module, i wasmbin.Import) (wasmbin.FuncType, bool) {
	if uint64(i.Type) >= uint64(len(bin.Types)) {
		return wasmbin.FuncType{}, false
	}
	return bin.Types[i.Type], true
}

// readManifest reads and checks the manifest against the module.
func (m *Module) readManifest(bin *wasmbin.Module) []Reason {
	sections := bin.Custom(abi.ManifestSection)
	switch {
	case len(sections) == 0:
		return []Reason{{abi.ModuleABI, fmt.Sprintf("no manifest: custom section %q is missing", abi.ManifestSection)}}
	case len(sections) > 1:
		return []Reason{{abi.ModuleABI, fmt.Sprintf("%d manifests: custom section %q may be there once", len(sections), abi.ManifestSection)}}
	}
	manifest, err := abi.ParseManifest(sections[0])
	if err != nil {
		return reasons(abi.ModuleABI, err)
	}
	var why []Reason
	seen := map[string]bool{}
	entry := func(export string) {
		if export == "" {
			export = abi.ExportCall
		}
		if !m.entries[export] && !seen[export] && !bin.Partial() {
			seen[export] = true
			why = append(why, Reason{abi.ModuleABI,
				fmt.Sprintf("no export %q that takes nothing and returns nothing or a code", printable(export, 80))})
		}
	}
	other := "" // a tool that names _start and is not raw
	for _, t := range manifest.Tools {
		entry(t.Export)
		m.command = m.command || t.Raw && t.Export == abi.ExportStart
		if !t.Raw && t.Export == abi.ExportStart {
			other = t.Name
		}
	}
	if m.command && other != "" { // how a call ended is told by its export alone
		why = append(why, Reason{abi.ModuleABI,
			fmt.Sprintf("tool %s is not raw, and a raw tool has its export %s: leaving with the exit code 0 is returning for raw tools alone", printable(other, 80), abi.ExportStart)})
	}
	for _, g := range manifest.Guards {
		entry(g.Export)
	}
	if len(manifest.Hooks) > 0 {
		entry("")
	}
	for _, i := range m.imports {
		if f, _ := lookup(i.Module, i.Name); f.traits&forGuards != 0 && len(manifest.Tools)+len(manifest.Hooks) > 0 {
			why = append(why, Reason{abi.ModuleImportDenied, fmt.Sprintf("imports %s.%s: for modules that offer guards alone", i.Module, i.Name)})
		}
	}
	if most := guardLimits.MemoryBytes; len(manifest.Hooks)+len(manifest.Guards) > 0 && m.minimum > most && m.minimum <= toolLimits.MemoryBytes {
		why = append(why, Reason{abi.ModuleLimit,
			fmt.Sprintf("memory begins with %d bytes, limit of hooks and guards %d", m.minimum, most)})
	}
	m.manifest = manifest
	return why
}

// compilable returns what of a module is compiled: all but the custom sections, which
// mean nothing to the engine. The names of functions stay, for traces.
func compilable(bin *wasmbin.Module) []byte { return bin.WithoutCustom("name") }

// compile meters the module's code and compiles it, for the caller to give it its place.
func (m *Module) compile(ctx context.Context, bin *wasmbin.Module) (made made, err error) {
	rewritten, err := m.rewrite(bin)
	if err != nil {
		return made, &RejectError{m.digest, []Reason{{abi.ModuleMalformed, err.Error()}}}
	}
	c := &code{engine: m.engine, source: sha256.Sum256(rewritten), memory: len(bin.Memories) == 1, start: bin.Start,
		windows: meter.HasWindows(bin), space: meter.SpaceOf(bin), bringing: make(chan struct{}, 1)}
	for i, t := range bin.Globals {
		if t.Mutable && t.Type.Number() {
			c.globals = append(c.globals, meter.Global(i))
		}
	}
	c.spot = m.engine.parked.codes.Add(1)
	m.code = c
	return m.engine.compiler.compile(ctx, m.digest, rewritten)
}

// isWhole says whether memory and the globals that hold numbers are all that running code
// of the module can change.
func isWhole(bin *wasmbin.Module) bool {
	for _, t := range bin.Globals {
		if t.Mutable && !t.Type.Number() {
			return false
		}
	}
	return bin.Lasting == 0
}

// reasons splits a joined error into its parts.
func reasons(code abi.Code, err error) []Reason {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []Reason
		for _, err := range joined.Unwrap() {
			all = append(all, reasons(code, err)...)
		}
		return all
	}
	return []Reason{{code, err.Error()}}
}
