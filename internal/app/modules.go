package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Modules finds and loads modules: files as they are, Go sources built first.
type Modules struct {
	Engine *host.Engine
	Builds string // folder for built sources; empty: the default of guestbuild
}

// Pack writes a manifest into a module: the given one, or what the module says
// of itself when it is asked in the sandbox, without a grant.
func (m Modules) Pack(ctx context.Context, wasm []byte, manifest *abi.Manifest) ([]byte, error) {
	if manifest == nil {
		var err error
		if manifest, err = m.Engine.Describe(ctx, wasm); err != nil {
			return nil, err
		}
	}
	section, err := manifest.Encode()
	if err != nil {
		return nil, err
	}
	return wasmbin.SetCustom(wasm, abi.ManifestSection, section)
}

// Build builds the Go plugin in a folder and packs it.
func (m Modules) Build(ctx context.Context, dir string) ([]byte, guestbuild.Result, error) {
	built, err := guestbuild.Build(ctx, dir, guestbuild.Options{CacheDir: m.Builds})
	if err != nil {
		return nil, built, err
	}
	packed, err := m.Pack(ctx, built.Wasm, nil)
	return packed, built, err
}

// module loads what an entry of the file names: a module's file or a source.
// what begins error texts. A file that is not there has the code not_found.
func (rt *Runtime) module(ctx context.Context, what, file, source, digest string, o Options) (*host.Module, error) {
	var wasm []byte
	var err error
	if source != "" {
		dir := rt.File.path(source)
		if info, statErr := os.Stat(dir); statErr != nil || !info.IsDir() {
			return nil, bad(abi.NotFound, "", "%s: %s: no such folder", what, source)
		}
		if wasm, _, err = o.Modules.Build(ctx, dir); err != nil {
			return nil, bad(abi.ModuleABI, "sandboxd plugin build "+dir, "%s: %v", what, err)
		}
	} else {
		wasm, err = os.ReadFile(rt.File.path(file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, bad(abi.NotFound, "", "%s: %s: no such file", what, file)
		}
		if err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %v", what, err)
		}
	}
	module, err := o.Modules.Engine.Load(ctx, wasm)
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
		return nil, bad(abi.DigestMismatch, "sandboxd plugin inspect --diff; write the new digest if the change is yours",
			"%s: digest mismatch: %s %s, file %s", what, FileName, short(digest), module.Digest().Short())
	}
	return module, nil
}

func sameDigest(written, actual string) bool { return strings.EqualFold(written, actual) }

// short cuts a digest to "sha256:" and 12 digits.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }
