package guestbuild

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Listing is what the toolchain says about the code that it makes of a guest.
type Listing struct {
	Wasm      []byte     // what Build returns, with the names of functions
	Functions []Function // of the guest's own packages, in no order
	Lines     []Line     // of languages other than Go, in the order of the code; nil: not known
}

// A Line says where the code from an offset on comes from, up to that of the next Line.
type Line struct {
	At   int    // offset in the listing's module
	File string // in the folder of the guest; empty: not the author's, or not known
	Line int    // from 1
}

// A Function is one function of a listing.
type Function struct {
	Name  string // as Go has it, such as "main.judge"
	Steps []Step // in the order of its code
}

// A Step is one line of a listing. Most are one instruction; package guestcode knows
// which are not.
type Step struct {
	Op   string // as the Go assembler calls it, such as "I64LtS"
	Arg  string // operands, if there are any
	File string // with the path of its package, such as "office/policy.go"; of inlined code that of its own source
	Line int    // 0: not known
}

// sdkPath is what the import paths of the SDK begin with: its packages are not the
// guest's own, wherever they lie.
const sdkPath = "github.com/sandboxd/sandboxd/sdk/"

// maxListing bounds what the compiler may print.
const maxListing = 256 << 20

// List compiles the main package in dir like Build and returns what the compiler says
// about the packages of its Go module, those of the SDK apart. It keeps nothing but what
// Go's own cache does. It is safe for concurrent use.
func List(ctx context.Context, dir string) (*Listing, error) {
	own, err := ownPackages(ctx, dir)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "guestbuild")
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", dir, err)
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "guest.wasm")
	args := slices.Clone(recipe)
	for i, a := range args {
		args[i] = strings.Replace(a, "-s -w", "-w", 1)
	}
	for _, p := range own {
		args = append(args, "-gcflags="+p+"=-S")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", out, ".")...)
	cmd.Dir = dir
	cmd.Env = environment(os.Environ())
	cmd.WaitDelay = time.Second
	text := clipped{most: maxListing}
	cmd.Stderr = &text
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
			return nil, &Error{Dir: dir, Output: string(bytes.TrimSpace(text.kept[:min(len(text.kept), maxOutput)]))}
		}
		return nil, fmt.Errorf("guest %s: go build: %w", dir, err)
	}
	l := &Listing{Functions: parseListing(text.kept, own)}
	if l.Wasm, err = os.ReadFile(out); err != nil {
		return nil, fmt.Errorf("guest %s: %w", dir, err)
	}
	return l, nil
}

// ownPackages returns the import paths of the packages of the main module.
func ownPackages(ctx context.Context, dir string) ([]string, error) {
	out, err := runGo(ctx, dir, "list", "-deps", "-json=ImportPath,Standard,Module", ".")
	if err != nil {
		return nil, err
	}
	var own []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return own, nil
		} else if err != nil {
			return nil, fmt.Errorf("guest %s: go list: %w", dir, err)
		}
		if !p.Standard && p.Module != nil && p.Module.Main && !strings.HasPrefix(p.ImportPath, sdkPath) {
			own = append(own, p.ImportPath)
		}
	}
}

// parseListing reads what the compiler prints with -S. Functions whose source is not in
// one of the packages are left out: generic ones of others, and what the compiler makes up.
func parseListing(text []byte, own []string) []Function {
	var all []Function
	var f *Function
	keep := func() {
		if f != nil && len(f.Steps) > 0 && slices.Contains(own, path.Dir(f.Steps[0].File)) {
			all = append(all, *f)
		}
		f = nil
	}
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for s.Scan() {
		line := s.Text()
		if !strings.HasPrefix(line, "\t") {
			keep()
			if name, _, ok := strings.Cut(line, " STEXT "); ok {
				f = &Function{Name: name}
			}
			continue
		}
		if f == nil {
			continue
		}
		// "\t0x0012 00018 (office/policy.go:41)\tI64LeS"
		_, at, ok := strings.Cut(line, "(")
		where, code, ok2 := strings.Cut(at, ")\t")
		if !ok || !ok2 {
			continue // a dump of bytes, or a relocation
		}
		n := 0 // "<unknown line number>"
		if i := strings.LastIndexByte(where, ':'); i >= 0 {
			if n, _ = strconv.Atoi(where[i+1:]); n > 0 {
				where = where[:i]
			}
		}
		op, arg, _ := strings.Cut(code, "\t")
		f.Steps = append(f.Steps, Step{Op: op, Arg: arg, File: where, Line: n})
	}
	keep()
	return all
}
