package argumentrules

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/sandboxd/sandboxd/policies/views"
)

// path judges a path without touching a disk.
func (r *Rule) path(text string, bad func(code, reason string) *finding) *finding {
	segments, code := clean(text, r.base())
	switch code {
	case "encoding":
		return bad(code, "a path is encoded too often")
	case "path_form":
		return bad(code, "a path has a form that readers take differently")
	}
	if !slices.ContainsFunc(r.Under, func(dir string) bool { return inside(segments, split(dir), r.Fold) }) {
		return bad("path_outside", "that path is outside of the folders that are allowed")
	}
	denied := slices.ContainsFunc(r.Deny, func(glob string) bool {
		for n := range segments { // what is below something that is denied is, too
			if globMatches(split(glob), segments[:n+1], r.Fold) {
				return true
			}
		}
		return false
	})
	allowed := func(glob string) bool { return globMatches(split(glob), segments, r.Fold) }
	if denied || r.Allow != nil && !slices.ContainsFunc(r.Allow, allowed) {
		return bad("pattern", "a path has a form that is not allowed")
	}
	return nil
}

func (r *Rule) base() string {
	if r.BaseDir == "" && len(r.Under) > 0 {
		return r.Under[0]
	}
	return cmp.Or(r.BaseDir, "/")
}

// maxDecoded is how often a path may be encoded.
const maxDecoded = 3

// slashes are characters that look like one.
const slashes = "\u2044\u2215\u29f8\uff0f\u29f5\ufe68\uff3c\u2216"

// clean returns the segments of a path, decoded and resolved, or a code.
func clean(text, base string) (segments []string, code string) {
	for n := 0; ; n++ {
		next, encoded := views.View{Text: text}.Percent()
		if !encoded {
			break
		}
		if n == maxDecoded {
			return nil, "encoding"
		}
		text = next.Text
	}
	text = norm.NFC.String(strings.ReplaceAll(text, `\`, "/"))
	// Readers disagree about what one does not see, about look-alikes of the slash,
	// about a home folder and about a drive.
	if strings.ContainsFunc(text, func(r rune) bool { return views.Invisible(r) || r == '\t' || r == '\n' || r == '\r' || r == '\uFFFD' }) ||
		strings.ContainsAny(text, slashes) || strings.HasPrefix(text, "~") || len(text) > 1 && text[1] == ':' {
		return nil, "path_form"
	}
	if !strings.HasPrefix(text, "/") {
		text = base + "/" + text
	}
	for s := range strings.SplitSeq(text, "/") {
		switch s {
		case "", ".":
		case "..":
			segments = segments[:max(0, len(segments)-1)]
		default:
			s = strings.TrimRight(s, ". ") // as Windows has it
			if s == "" {
				return nil, "path_form"
			}
			segments = append(segments, s)
		}
	}
	return segments, ""
}

func split(path string) []string {
	return strings.FieldsFunc(norm.NFC.String(path), func(r rune) bool { return r == '/' })
}

func same(a, b string, fold bool) bool { return a == b || fold && strings.EqualFold(a, b) }

func inside(path, dir []string, fold bool) bool {
	if len(path) < len(dir) {
		return false
	}
	for i := range dir {
		if !same(path[i], dir[i], fold) {
			return false
		}
	}
	return true
}

// globMatches matches whole segments: "*" stands for any characters of one, "**" for
// any number of segments.
func globMatches(glob, path []string, fold bool) bool {
	if len(glob) == 0 {
		return len(path) == 0
	}
	if glob[0] == "**" {
		for i := range len(path) + 1 {
			if globMatches(glob[1:], path[i:], fold) {
				return true
			}
		}
		return false
	}
	return len(path) > 0 && segmentMatches(glob[0], path[0], fold) && globMatches(glob[1:], path[1:], fold)
}

func segmentMatches(glob, s string, fold bool) bool {
	head, rest, star := strings.Cut(glob, "*")
	if len(s) < len(head) || !same(s[:len(head)], head, fold) {
		return false
	}
	s = s[len(head):]
	if !star {
		return s == ""
	}
	for i := range len(s) + 1 {
		if segmentMatches(rest, s[i:], fold) {
			return true
		}
	}
	return false
}
