package meter

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// maxName bounds the name of a function that the engine is given, in bytes, as it is quoted: a byte
// that is no text takes four there.
const maxName = 256

// names returns the custom section that has the names of functions, which the
// engine's account of a trap uses, or nil. The names are what [Frames] reads: the
// index in the module as its author made it, and behind it the quoted name, so that no
// name, which the guest chooses, can look like anything else.
func (w *rewriter) names() []byte {
	names := map[uint32]string{}
	for _, x := range w.m.Exports {
		if x.Kind == wasmbin.Func && x.Index < w.funcCount {
			names[x.Index] = x.Name
		}
	}
	if len(w.m.Custom("name")) == 1 {
		for index, text := range w.m.FunctionNames() {
			if index < w.funcCount && text != "" {
				names[index] = text
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := u32(nil, uint32(len(names)))
	for _, index := range slices.Sorted(maps.Keys(names)) {
		list = name(u32(list, w.shift(index)), strconv.FormatUint(uint64(index), 10)+" "+quote(names[index]))
	}
	out := append(name(nil, "name"), 1)
	return append(u32(out, uint32(len(list))), list...)
}

// quote returns the quoted text, without its end if it would be longer than maxName.
func quote(text string) string {
	long, end := len(`""`), 0
	for end < len(text) {
		_, n := utf8.DecodeRuneInString(text[end:])
		if long += len(strconv.Quote(text[end:end+n])) - len(`""`); long > maxName {
			break
		}
		end += n
	}
	return strconv.Quote(text[:end])
}

// A Space tells the functions of a module from those that Rewrite adds to it. Its zero value is
// of a module without functions.
type Space struct {
	imported, all uint32 // functions, in the module as its author made it
}

// SpaceOf returns that of a module.
func SpaceOf(m *wasmbin.Module) Space {
	n := uint32(m.Imported(wasmbin.Func))
	return Space{n, n + uint32(len(m.Functions))}
}

// A Frame is a call that had not returned when a rewritten module was stopped.
type Frame struct {
	Index uint32 // of the function, in the module as its author made it; imports come first
	Name  string // as the author's name section has it, else as it is exported, as much of it as takes at most 256 bytes when it is quoted; empty if it has none
}

// Frames yields the frames that the engine's error tells of, innermost first: those of the
// author's functions, and not of the host's or of what Rewrite has added. There are none in an
// error that has no trace. The engine tells of some thirty frames.
func (s Space) Frames(err error) iter.Seq[Frame] {
	return func(yield func(Frame) bool) {
		const head = "\nwasm stack trace:"
		text := err.Error()
		at := strings.LastIndex(text, head)
		if at < 0 {
			return
		}
		for line := range strings.Lines(text[at+len(head):]) {
			if f, ok := s.frame(strings.TrimSpace(line)); ok && !yield(f) {
				return
			}
		}
	}
}

// frame reads a line of a trace: `.N "name"(types)`, or `.$N(types)` if the function has no
// name, N then being its index in the rewritten module. All others belong to other modules.
func (s Space) frame(line string) (Frame, bool) {
	line, own := strings.CutPrefix(line, ".")
	line, nameless := strings.CutPrefix(line, "$")
	digits := line[:len(line)-len(strings.TrimLeft(line, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 32)
	if !own || err != nil {
		return Frame{}, false
	}
	f := Frame{Index: uint32(n)}
	if nameless {
		if f.Index--; f.Index < s.imported || f.Index >= s.all {
			return Frame{}, false
		}
		return f, true
	}
	quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(line[len(digits):], " "))
	if err != nil {
		return Frame{}, false
	}
	f.Name, err = strconv.Unquote(quoted)
	return f, err == nil
}
