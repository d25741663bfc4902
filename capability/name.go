package capability

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxName is the longest state key or artifact name that can be granted, in
// bytes without the scope.
const MaxName = 256

// maxSecret is the longest name of a secret.
const maxSecret = 64

var scopes = []string{"session", "user", "app", "temp"}

// reservedKeys begin the state keys of the framework itself.
var reservedKeys = []string{"adk_", "_adk", "_sbx_", "sandboxd_", "_sandboxd"}

func parseState(s string) (string, *SyntaxError) {
	const hint = "keys are written session:KEY, user:KEY, app:KEY or temp:KEY"
	scope, key := cutScope(kindState, s)
	if scope == "" {
		return "", wrong(hint, "state key %s has no known scope", quote(s))
	}
	if what := checkName(kindState, scope, key); what != "" {
		return "", wrong("", "state key %s: %s", quote(s), what)
	}
	return s, nil
}

func parseArtifact(s string) (string, *SyntaxError) {
	scope, name := cutScope(kindArtifact, s)
	if what := checkName(kindArtifact, scope, name); what != "" {
		return "", wrong("", "artifact name %s: %s", quote(s), what)
	}
	return s, nil
}

// cutScope separates the scope, with its colon, from a key or name. A state key
// without a known scope has none; an artifact has the scope "user:" or none.
func cutScope(kind, s string) (scope, rest string) {
	switch kind {
	case kindState:
		for _, scope := range scopes {
			if rest, ok := strings.CutPrefix(s, scope+":"); ok {
				return scope + ":", rest
			}
		}
	case kindArtifact:
		if rest, ok := strings.CutPrefix(s, "user:"); ok {
			return "user:", rest
		}
	}
	return "", s
}

// checkName says what is wrong with a pattern of keys or names, or nothing. A
// pattern that it refuses covers no key or name that can be asked for.
func checkName(kind, scope, pattern string) string {
	literal := strings.Replace(pattern, "*", "", 1)
	switch {
	case pattern == "":
		return "empty"
	case strings.Contains(literal, "*"):
		return "more than one wildcard"
	case len(literal) > MaxName:
		return "exceeds " + strconv.Itoa(MaxName) + " bytes"
	case !utf8.ValidString(literal):
		return "not UTF-8"
	case strings.ContainsFunc(literal, func(r rune) bool { return !strconv.IsPrint(r) }):
		return "character that cannot be printed"
	case pattern[0] == ' ' || pattern[len(pattern)-1] == ' ':
		return "begins or ends with a space"
	case (scope == "session:" || scope == "") && strings.Contains(literal, ":"):
		return "colon without a known scope before it"
	}
	if kind == kindState {
		for _, prefix := range reservedKeys {
			if strings.HasPrefix(lowerASCII(pattern), prefix) {
				return "belongs to the framework"
			}
		}
		return ""
	}
	if strings.Contains(literal, `\`) {
		return "backslash"
	}
	for seg := range strings.SplitSeq(pattern, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return "path with an empty or dot segment"
		}
	}
	return ""
}

// checkSecret says what is wrong with a pattern of secret names, or nothing.
func checkSecret(pattern string) string {
	literal := strings.Replace(pattern, "*", "", 1)
	if pattern == "" || len(literal) > maxSecret {
		return "want 1 to 64 characters"
	}
	for i := range len(literal) {
		c := literal[i]
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			return "want letters, digits, _ and at most one *"
		}
	}
	return ""
}

// check applies the rules of the kind to a pattern with its scope.
func check(kind, pattern string) string {
	if kind == kindSecret {
		return checkSecret(pattern)
	}
	scope, rest := cutScope(kind, pattern)
	if kind == kindState && scope == "" {
		return "no known scope"
	}
	return checkName(kind, scope, rest)
}

// coversName reports whether pattern covers all that b covers, which is a name
// that is allowed, or a pattern too.
func coversName(kind, pattern, b string) bool {
	scope, want := cutScope(kind, pattern)
	other, have := cutScope(kind, b)
	return scope == other && coversGlob(want, have)
}

// meetNames returns the patterns that together cover what both patterns cover.
func meetNames(kind, a, b string) []string {
	scope, a := cutScope(kind, a)
	other, b := cutScope(kind, b)
	if scope != other {
		return nil
	}
	var out []string
	for _, pattern := range meetGlobs(a, b) {
		if check(kind, scope+pattern) == "" {
			out = append(out, scope+pattern)
		}
	}
	return out
}

// coversGlob reports whether pattern covers all that b covers. Both have at most
// one star.
func coversGlob(pattern, b string) bool {
	before, after, open := strings.Cut(pattern, "*")
	if !open {
		return pattern == b
	}
	if head, tail, open := strings.Cut(b, "*"); open {
		return strings.HasPrefix(head, before) && strings.HasSuffix(tail, after)
	}
	return len(b) >= len(before)+len(after) && strings.HasPrefix(b, before) && strings.HasSuffix(b, after)
}

// meetGlobs intersects two patterns with at most one star each: "ab*" and "*bc"
// give "ab*bc", and "abc", in which both ends share the b.
func meetGlobs(a, b string) []string {
	beforeA, afterA, openA := strings.Cut(a, "*")
	beforeB, afterB, openB := strings.Cut(b, "*")
	if !openA || !openB {
		if !openB {
			a, b = b, a
		}
		if coversGlob(b, a) {
			return []string{a}
		}
		return nil
	}
	before, after := longer(beforeA, beforeB), longer(afterA, afterB)
	if !strings.HasPrefix(before, beforeA) || !strings.HasPrefix(before, beforeB) ||
		!strings.HasSuffix(after, afterA) || !strings.HasSuffix(after, afterB) {
		return nil
	}
	out := []string{before + "*" + after}
	least := max(len(beforeA)+len(afterA), len(beforeB)+len(afterB), len(before), len(after))
	for n := least; n < len(before)+len(after); n++ {
		shared := len(before) + len(after) - n
		if strings.HasSuffix(before, after[:shared]) {
			out = append(out, before+after[shared:])
		}
	}
	return out
}

func longer(a, b string) string {
	if len(a) >= len(b) {
		return a
	}
	return b
}
