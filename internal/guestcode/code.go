// Package guestcode knows what the compiled code of a guest is made of, for tests of it:
// which functions are its author's, where they branch, which lines of source that was, and
// how instructions could work differently.
//
// Of a guest in Go that is built from source it knows the line of every instruction, because
// the compiler lists its code, so that what was inlined from elsewhere and what the compiler
// added (checks of bounds, growth of slices and of the stack, calls that resume) is left out.
// Of a guest in C, Rust or AssemblyScript that is built from source it knows the lines that
// the compiler notes beside the code, and leaves out what was inlined from elsewhere. Of any
// other module it knows the names of functions, from the section "name".
package guestcode

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// Code is the code of a guest. It is not changed once it is made.
type Code struct {
	bin       *wasmbin.Module
	lines     map[int]Site // of the author's instructions, by offset; nil if they are not known so
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
	works []int        // offsets of instructions that do something: the end of a block is no part of what was done in it
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
		if len(listing.Lines) > 0 {
			c.lines = placed(bin, named, listing.Lines)
		}
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
		if listed && of == nil || !listed && c.lines == nil && !c.own(name) {
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
		if c.lines != nil {
			at := slices.IndexFunc(r.all, func(in inst) bool { return c.lines[in.Start].Line > 0 })
			if at < 0 {
				continue
			}
			f.Name, f.sites, f.Site = c.unique(exported(name)), c.lines, c.lines[r.all[at].Start]
		}
		for _, in := range r.all {
			switch in.Op {
			case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpElse, wasmbin.OpEnd:
			default:
				f.works = append(f.works, in.Start)
			}
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

// placed returns where the instructions of a module come from. The lines are of a module
// with the same instructions, which may lie elsewhere.
func placed(bin, listed *wasmbin.Module, lines []guestbuild.Line) map[int]Site {
	sites := map[int]Site{}
	next, stop := iter.Pull2(listed.Bodies())
	defer stop()
	for _, x := range bin.Bodies() {
		_, y, _ := next()
		for s, t := x.Instructions(), y.Instructions(); s.Next() && t.Next(); {
			// The line that begins last, at the instruction or before it in the function.
			i, exact := slices.BinarySearchFunc(lines, t.Instruction().Start, func(l guestbuild.Line, at int) int { return cmp.Compare(l.At, at) })
			if !exact {
				i--
			}
			if i >= 0 && lines[i].At >= y.Locals-1 && lines[i].Line > 0 {
				sites[s.Instruction().Start] = Site{lines[i].File, lines[i].Line}
			}
		}
	}
	return sites
}

// unique returns a name that no function has yet: code that is there several times, as that
// of generic functions, is counted by its copies.
func (c *Code) unique(name string) string {
	same := 1
	for _, f := range c.Functions {
		if f.Name == name || strings.HasPrefix(f.Name, name+" #") {
			same++
		}
	}
	if same > 1 {
		return fmt.Sprintf("%s #%d", name, same)
	}
	return name
}

// exported is the name of a function as its author wrote it: without what the SDK for C and
// the compilers of Rust and AssemblyScript put around it.
func exported(name string) string {
	last := ""
	for rest, ok := strings.CutPrefix(name, "_ZN"); ok; { // segments, each behind its length, and a hash
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if rest = rest[len(digits):]; err != nil || n > len(rest) {
			break
		}
		if segment := rest[:n]; rest[n:] == "E" && last != "" {
			return last
		} else {
			last, rest = segment, rest[n:]
		}
	}
	return short(strings.TrimPrefix(name, "sbx__export_"))
}

// Places returns where the instructions of a function come from, by their offset in the
// module, but for those that do nothing or come from others than the author; nothing if that
// is not known.
func (c *Code) Places(f *Function) iter.Seq2[int, Site] {
	return func(yield func(int, Site) bool) {
		for _, at := range f.works {
			if site := f.sites[at]; c.wrote(site) && !yield(at, site) {
				return
			}
		}
	}
}

// wrote reports whether a place is in the author's own source.
func (c *Code) wrote(s Site) bool {
	return c.lines != nil && s.Line > 0 || c.packages[path.Dir(s.File)]
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
