package guestbuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A listed package is what go list says of one.
type listed struct {
	ImportPath string
	Name       string
	Dir        string
	DepOnly    bool
	Standard   bool
	Module     *listedModule

	GoFiles, SFiles, HFiles, SysoFiles, EmbedFiles []string
}

type listedModule struct {
	Path    string
	Version string
	Sum     string
	Main    bool
	GoMod   string
	Replace *listedModule
}

// fingerprint returns a digest of all that a build of dir depends on, and the
// version of Go. That is the recipe, Go, and for every package outside the
// standard library its path, module and files; where the files are does not
// count. The list comes from the toolchain, so nothing that is compiled is missed
// and nothing else, such as a test, causes a build.
func fingerprint(ctx context.Context, dir string) (key, version string, err error) {
	v, err := runGo(ctx, dir, "env", "GOVERSION")
	if err != nil {
		return "", "", err
	}
	version = string(bytes.TrimSpace(v))
	out, err := runGo(ctx, dir, "list", "-deps",
		"-json=ImportPath,Name,Dir,DepOnly,Standard,Module,GoFiles,SFiles,HFiles,SysoFiles,EmbedFiles", ".")
	if err != nil {
		return "", "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", version, recipe)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return "", "", fmt.Errorf("guest %s: go list: %w", dir, err)
		}
		if !p.DepOnly && p.Name != "main" {
			return "", "", &Error{Dir: dir, Output: fmt.Sprintf("package %s: want package main", p.Name)}
		}
		if p.Standard {
			continue
		}
		if err := p.hash(h); err != nil {
			return "", "", fmt.Errorf("guest %s: %w", dir, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), version, nil
}

// hash writes to h what p contributes to a build.
func (p *listed) hash(h io.Writer) error {
	fmt.Fprintf(h, "package %q\n", p.ImportPath)
	for m := p.Module; m != nil; m = m.Replace {
		fmt.Fprintf(h, "module %q %q %q\n", m.Path, m.Version, m.Sum)
		if m.Version == "" && m.GoMod != "" { // not from the module cache: the file can change
			if err := hashFile(h, "go.mod", m.GoMod); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.SysoFiles, p.EmbedFiles) {
		if err := hashFile(h, name, filepath.Join(p.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func hashFile(h io.Writer, name, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "file %q %x\n", name, sha256.Sum256(data))
	return nil
}
