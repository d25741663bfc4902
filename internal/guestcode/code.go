// Package guestcode knows what the compiled code of a guest is made of, for tests of it:
// which functions are its author's, where they branch, which lines of source that was, and
// how instructions could work differently.
//
// Of a guest in Go that is built from source it knows the line of every instruction, because
// the compiler lists its code, so that what was inlined from elsewhere and what the compiler
// added (checks of bounds, growth of slices and of the stack, calls that resume) is left out.
// Of any other module it knows the names of functions, from the section "name".
package guestcode

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// Code is the code of a guest. It is not changed once it is made.
type Code struct {
	bin       *wasmbin.Module
	imported  int
	names     map[uint32]string // of all functions, as the module has them
	packages  map[string]bool   // of the author
	mine      map[int]bool      // Functions, by index
	golang    bool              // compiled by Go, whose calls and branches have a form of their own
	rego      bool              // compiled by OPA, whose functions are rules
	Functions []*Function       // of the author, in the order of the module
}

// A Function is a function that the author wrote.
type Function struct {
	Index    int    // among the functions with a body, from 0
	Name     string // such as "judge" or "views.(*reader).text"
	Site     Site   // where it begins
	Branches []Branch
	Changes  []Change

	sites map[int]Site // of instructions, by offset; nil if nothing is known
}

// A Site is a place in the source.
type Site struct {
	File string // such as "office/policy.go"
	Line int    // 0: not known
}

// A Branch is a place where the code goes one of two ways.
type Branch struct {
	At   int    // offset of the instruction
	Site Site   // where it is
	Ways [2]Way // when the condition holds, and when it does not
}

// A Way is one of the ways of a branch.
type Way struct {
	To   int // offset of the code that follows
	Site Site
}

// ErrNoNames reports a module that does not say which functions are its author's.
var ErrNoNames = errors.New("the module has no names of functions: build it from source, or keep the custom section \"name\"")

// Read reads the code of a module. The listing is that of its source, or nil for a module
// that was not built from source; if it is of other code than the module's, that is an
// error. A listing without functions only has their names, in its module.
func Read(wasm []byte, listing *guestbuild.Listing) (*Code, error) {
	bin, err := wasmbin.Decode(wasm)
	if err != nil {
		return nil, err
	}
	c := &Code{bin: bin, imported: bin.Imported(wasmbin.Func), names: maps.Collect(bin.FunctionNames()), packages: map[string]bool{}, mine: map[int]bool{}}
	if listing != nil {
		named, err := wasmbin.Decode(listing.Wasm)
		if err != nil {
			return nil, err
		}
		if !sameCode(bin, named) {
			return nil, errors.New("the source does not make the code of the module: it has changed since")
		}
		c.names = maps.Collect(named.FunctionNames())
	}
	if len(c.names) == 0 {
		return nil, ErrNoNames
	}
	for _, name := range c.names {
		c.golang = c.golang || name == "runtime.morestack"
		c.rego = c.rego || name == "opa_eval_ctx_new"
	}
	listed := listing != nil && listing.Functions != nil
	functions := map[string]*guestbuild.Function{}
	if listed {
		for i, f := range listing.Functions {
			functions[linked(f.Name)] = &listing.Functions[i]
			c.packages[path.Dir(f.Steps[0].File)] = true
		}
	}
	for i, body := range bin.Bodies() {
		name := c.names[uint32(c.imported+i)]
		of := functions[name]
		if listed && of == nil || !listed && !c.own(name) {
			continue
		}
		f := &Function{Index: i, Name: short(name)}
		if of != nil {
			if boring.MatchString(of.Name) {
				continue
			}
			f.Name, f.Site = short(of.Name), Site{of.Steps[0].File, of.Steps[0].Line}
		}
		r := c.reader(body)
		if of != nil {
			f.sites = r.align(of)
		}
		r.find(f)
		c.Functions, c.mine[i] = append(c.Functions, f), true
	}
	return c, nil
}

// sameCode reports whether two modules have the same instructions. What they name may lie
// elsewhere in memory: Go writes into a module how it was built.
func sameCode(a, b *wasmbin.Module) bool {
	if len(a.Functions) != len(b.Functions) || a.Imported(wasmbin.Func) != b.Imported(wasmbin.Func) {
		return false
	}
	next, stop := iter.Pull2(b.Bodies())
	defer stop()
	for _, x := range a.Bodies() {
		_, y, _ := next()
		s, t := x.Instructions(), y.Instructions()
		for s.Next() {
			if !t.Next() || s.Instruction().Op != t.Instruction().Op {
				return false
			}
		}
		if t.Next() {
			return false
		}
	}
	return true
}

// Watch reports whether a function with a body is the author's.
func (c *Code) Watch(function int) bool { return c.mine[function] }

// boring are functions that run before a call, or never.
var boring = regexp.MustCompile(`\.(main|init(\.\d+)?|map\.init\.\d+)$`)

// notOwn are names of functions that come with a language or with an SDK: of C, Rust and
// AssemblyScript.
var notOwn = regexp.MustCompile(`^(sbx_|sandboxd|__|_start$|_initialize$|mem(cpy|set|move|cmp|chr)$|malloc$|free$|calloc$|realloc$|str[a-z]+$|` +
	`~|sdk/|.*/sandboxd/|(<.* as )?(core|alloc|std|sandboxd|compiler_builtins|dlmalloc)::|_ZN(4core|5alloc|3std|8sandboxd|17compiler_builtins|8dlmalloc)|_R.*(4core|5alloc|3std|8sandboxd)|rust_|__rust)`)

// rules begins the names of the rules of a guard in Rego.
const rules = "g0.data.guard."

// copied are the rules of sandboxd.rego, which every policy has a copy of.
var copied = []string{"answer", "denial", "first_denial", "hint", "verdict"}

// own reports whether a function is the author's, by its name alone.
func (c *Code) own(name string) bool {
	if c.golang {
		return strings.HasPrefix(name, "main.") && !boring.MatchString(name)
	}
	if c.rego {
		rule, is := strings.CutPrefix(name, rules)
		return is && !slices.Contains(copied, rule)
	}
	return name != "" && !notOwn.MatchString(name)
}

var unlinked = regexp.MustCompile(`[^\w.]`)

// linked is the name of a function as Go's linker writes it.
func linked(name string) string { return unlinked.ReplaceAllString(name, "_") }

// short is a name for people: without the path of its package, and without the package
// if that is main. Types that a generic function is for are left out.
func short(name string) string {
	name, _, _ = strings.Cut(name, "[")
	if i := strings.LastIndexByte(name, '/'); i >= 0 && !strings.Contains(name, " ") {
		name = name[i+1:]
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, "main."), rules)
}

// to is the site as where code goes.
func (s Site) to() string {
	if s.Line == 0 {
		return "there"
	}
	return fmt.Sprintf("to line %d", s.Line)
}

// Name is the file without the path of its package: "policy.go".
func (s Site) Name() string { return path.Base(s.File) }
