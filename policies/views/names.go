package views

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Allows reports whether a pattern allows a name: exactly, but that "*" stands for
// any number of a-z, 0-9, "_" and "-". A name that only looks alike is another one.
func Allows(pattern, name string) bool {
	return match(pattern, name, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	})
}

// Covers reports whether a pattern speaks of a name, for a rule that forbids: case,
// look-alikes in compatibility form and what is invisible count for nothing, and "*"
// stands for anything.
func Covers(pattern, name string) bool {
	plain := strings.ToLower(norm.NFKC.String(strings.Map(visible, name)))
	return Allows(pattern, name) || match(strings.ToLower(pattern), plain, func(byte) bool { return true })
}

// AnyAllows reports whether one of the patterns allows a name.
func AnyAllows(patterns []string, name string) bool { return anyOf(patterns, name, Allows) }

// AnyCovers reports whether one of the patterns speaks of a name.
func AnyCovers(patterns []string, name string) bool { return anyOf(patterns, name, Covers) }

func anyOf(patterns []string, name string, f func(pattern, name string) bool) bool {
	for _, p := range patterns {
		if f(p, name) {
			return true
		}
	}
	return false
}

// ValidPattern reports whether a pattern of tool names can match one: ASCII letters,
// digits, "_", "-", ".", ":" and "*".
func ValidPattern(pattern string) bool {
	for i := range len(pattern) {
		if c := pattern[i]; !alnum(c) && !strings.ContainsRune("_-.:*", rune(c)) {
			return false
		}
	}
	return pattern != ""
}

// match matches a pattern in which "*" stands for any number of bytes that are in.
func match(pattern, name string, in func(byte) bool) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	if !star {
		return name == ""
	}
	for {
		if match(rest, name, in) {
			return true
		}
		if name == "" || !in(name[0]) {
			return false
		}
		name = name[1:]
	}
}
