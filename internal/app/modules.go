package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/plugins/extism"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Modules finds and loads modules: files as they are, sources built first.
type Modules struct {
	Engine *host.Engine
	Builds string // folder for built sources; empty: the default of guestbuild
	Tenant string // whose turns to compile are taken
	// Began is told of what may take long when it begins, such as "compiling weather 5d0c8e77", and
	// what it returns is called when that has ended. Texts are as files and modules have them. May be nil.
	Began func(step string) (ended func())
}

func (m Modules) began(format string, args ...any) (ended func()) {
	if m.Began == nil {
		return func() {}
	}
	return m.Began(fmt.Sprintf(format, args...))
}

// Load checks and compiles a module. name is for [Modules.Began]. Errors are those of
// [host.Engine.LoadFor].
func (m Modules) Load(ctx context.Context, name string, wasm []byte) (*host.Module, error) {
	sum := sha256.Sum256(wasm)
	defer m.began("compiling %s %x", name, sum[:4])()
	return m.Engine.LoadFor(ctx, m.Tenant, wasm)
}

// describe has a module that is compiled for this say what it is.
func (m Modules) describe(ctx context.Context, wasm []byte) (*abi.Manifest, error) {
	defer m.began("asking a module what it is")()
	return m.Engine.DescribeFor(ctx, m.Tenant, wasm)
}

// Pack writes a manifest into a module: the given one, or what the module says
// of itself when it is asked in the sandbox, without a grant.
func (m Modules) Pack(ctx context.Context, wasm []byte, manifest *abi.Manifest) ([]byte, error) {
	if manifest == nil {
		var err error
		if manifest, err = m.describe(ctx, wasm); err != nil {
			return nil, err
		}
	}
	section, err := manifest.Encode()
	if err != nil {
		return nil, err
	}
	packed, err := wasmbin.SetCustom(wasm, abi.ManifestSection, section)
	if _, ok := errors.AsType[wasmbin.Errors](err); ok {
		return nil, m.refused(ctx, wasm, err)
	}
	return packed, err
}

// refused returns every reason against a module that cannot be decoded, of which err has those that decoding found.
func (m Modules) refused(ctx context.Context, wasm []byte, err error) error {
	if m.Engine == nil { // what was described once is packed without one
		return err
	}
	_, all := m.Engine.DescribeFor(ctx, m.Tenant, wasm)
	return all
}

// AllReasons returns the texts of every reason for which a module is refused, on one line: of what
// cannot be packed there is no inspection that would show them.
func AllReasons(refused *host.RejectError) string {
	var all []string
	for _, r := range refused.Reasons {
		all = append(all, r.Text)
	}
	return strings.Join(all, "; ")
}

// Import returns the module that a file holds. The bytes of a module are the module
// as it is or, with a manifest, packed with that. A file in JSON is an Extism
// manifest (see package plugins/extism): the module that it names is packed with
// the given manifest, or else with what it exports. Paths in it are relative to the
// folder of the file. name is the file's.
func (m Modules) Import(ctx context.Context, name string, data []byte, manifest *abi.Manifest) ([]byte, error) {
	if !IsExtism(data) {
		if manifest == nil {
			return data, nil
		}
		return m.Pack(ctx, data, manifest)
	}
	described, err := extism.Parse(data)
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%v", err)
	}
	plugin, _, _ := strings.Cut(filepath.Base(name), ".")
	plugin = strings.ToLower(plugin)
	if err := abi.ValidName(plugin); err != nil && manifest == nil {
		return nil, bad(abi.ConfigInvalid, "rename the file, or name the plugin in a manifest of its own", "%v", err)
	}
	wasm, manifest, err := extism.Import(described, plugin, manifest, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		return os.ReadFile(path)
	})
	if _, ok := errors.AsType[wasmbin.Errors](err); ok {
		return nil, m.refused(ctx, wasm, err)
	}
	if _, ok := errors.AsType[*extism.HashError](err); ok {
		return nil, bad(abi.DigestMismatch, "write the new hash if the change is yours", "%v", err)
	}
	switch {
	case errors.Is(err, extism.ErrCommand):
		return nil, bad(abi.ModuleABI, "Go: add -buildmode=c-shared; C: -mexec-model=reactor; or name _start as the export of a raw tool in a manifest of its own", "%v", err)
	case errors.Is(err, extism.ErrNoTool):
		return nil, bad(abi.ModuleABI, "name its tools and their exports in a manifest of its own", "%v", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, bad(abi.NotFound, "paths are relative to the folder of the Extism manifest", "extism manifest: wasm[0]: %v", err)
	case err != nil:
		return nil, bad(abi.ConfigInvalid, "", "%v", err)
	}
	return m.Pack(ctx, wasm, manifest)
}

// IsExtism reports whether a file is an Extism manifest, right or wrong: no module
// begins like JSON.
func IsExtism(data []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) }

// Build builds the source of a guest in a folder, in any language of package
// guestlang, and packs it: with the manifest, or the one beside the source, or what
// the module says of itself.
func (m Modules) Build(ctx context.Context, dir string, manifest *abi.Manifest) ([]byte, guestlang.Result, error) {
	source, ok := guestlang.Find(dir)
	if !ok {
		return nil, guestlang.Result{}, bad(abi.NotFound, "sandboxd plugin new and sandboxd policy new make such folders", "%s: no source of a guest", dir)
	}
	if manifest == nil && source.Manifest != "" {
		name := filepath.Join(dir, source.Manifest)
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, guestlang.Result{}, bad(abi.NotFound, "it says what "+source.Entry+" offers; sandboxd plugin new makes one", "%s: no such file", name)
		}
		if err != nil {
			return nil, guestlang.Result{}, fmt.Errorf("guest %s: %w", dir, err)
		}
		if manifest, err = ParseManifest(data, dir); err != nil {
			return nil, guestlang.Result{}, bad(abi.ConfigInvalid, "", "%s: %v", name, err)
		}
	}
	ended := m.began("building %s", folder(dir))
	built, err := guestlang.Build(ctx, source, m.Builds)
	ended()
	if missing, ok := errors.AsType[*guestlang.MissingError](err); ok {
		return nil, built, bad("", missing.Install, "%s: %v", dir, missing)
	}
	if err != nil {
		return nil, built, err
	}
	if manifest == nil {
		if manifest, err = m.described(ctx, built.Wasm); err != nil {
			return nil, built, err
		}
	}
	packed, err := m.Pack(ctx, built.Wasm, manifest)
	return packed, built, err
}

// folder is the name of a folder.
func folder(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	return filepath.Base(dir)
}

// described returns what a built module says of itself. It is asked once, and its answer
// kept beside what was built, because to ask is to compile it once more.
func (m Modules) described(ctx context.Context, wasm []byte) (*abi.Manifest, error) {
	cache, err := guestbuild.OpenCache(m.Builds)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%x-manifest-%d", sha256.Sum256(wasm), abi.Version)
	if data, ok := cache.Get(key); ok {
		if manifest, err := abi.ParseManifest(data); err == nil {
			return manifest, nil
		}
	}
	manifest, err := m.describe(ctx, wasm)
	if err != nil {
		return nil, err
	}
	data, err := manifest.Encode()
	if err != nil {
		return nil, err
	}
	return manifest, cache.Put(key, data)
}

// module loads what an entry of the file names: a module's file or a source,
// perhaps with the file of its manifest.
// what begins error texts. A file that is not there has the code not_found.
func (rt *Runtime) module(ctx context.Context, what, file, source, manifestFile, digest string, o Options) (*host.Module, error) {
	modules := o.Modules
	modules.Tenant = rt.File.Name
	wasm, err := rt.File.read(ctx, modules, what, file, source, manifestFile)
	if err != nil {
		return nil, err
	}
	module, err := modules.Load(ctx, what[strings.LastIndexByte(what, ' ')+1:], wasm)
	if reject, ok := errors.AsType[*host.RejectError](err); ok {
		more := ""
		if n := len(reject.Reasons); n > 1 {
			more = fmt.Sprintf("; %d more", n-1)
		}
		return nil, bad(reject.Reasons[0].Code, "sandboxd plugin inspect shows all of them", "%s: %s%s", what, reject.Reasons[0].Text, more)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if digest != "" && !sameDigest(digest, module.Digest().String()) {
		return nil, bad(abi.DigestMismatch, fmt.Sprintf("sandboxd plugin inspect --diff, then sandboxd config pin %s if the change is yours", rt.File.dir),
			"%s: digest mismatch: %s %s, file %s", what, FileName, short(digest), module.Digest().Short())
	}
	return module, nil
}

// read returns the module that an entry names, packed.
func (f *File) read(ctx context.Context, modules Modules, what, file, source, manifestFile string) ([]byte, error) {
	var wasm []byte
	var manifest *abi.Manifest
	var err error
	if manifestFile != "" {
		if manifest, err = f.manifest(what, manifestFile); err != nil {
			return nil, err
		}
	}
	if source != "" {
		dir := f.path(source)
		if info, statErr := os.Stat(dir); statErr != nil || !info.IsDir() {
			return nil, bad(abi.NotFound, "", "%s: %s: no such folder", what, source)
		}
		if wasm, _, err = modules.Build(ctx, dir, manifest); err != nil {
			with := "sandboxd plugin build "
			if s, _ := guestlang.Find(dir); s.Policy {
				with = "sandboxd policy build "
			}
			return nil, bad(abi.ModuleABI, with+dir, "%s: %v", what, err)
		}
	} else {
		wasm, err = os.ReadFile(f.path(file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, bad(abi.NotFound, "", "%s: %s: no such file", what, file)
		}
		if err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %v", what, err)
		}
		wasm, err = modules.Import(ctx, f.path(file), wasm, manifest)
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, bad(e.Code, e.Hint, "%s: %s: %s", what, file, e.Text)
		}
		if refused, ok := errors.AsType[*host.RejectError](err); ok {
			return nil, bad(refused.Reasons[0].Code, "", "%s: %s", what, AllReasons(refused))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	return wasm, nil
}

// manifest reads the file of a manifest that an entry names.
func (f *File) manifest(what, file string) (*abi.Manifest, error) {
	data, err := os.ReadFile(f.path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bad(abi.NotFound, "", "%s: %s: no such file", what, file)
	}
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", what, err)
	}
	m, err := ParseManifest(data, filepath.Dir(f.path(file)))
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %s: %v", what, file, err)
	}
	return m, nil
}

func sameDigest(written, actual string) bool { return strings.EqualFold(written, actual) }

// short cuts a digest to "sha256:" and 12 digits.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }
