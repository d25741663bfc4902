package capability

import (
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a path pattern. They hold for every intersection of patterns too.
const (
	maxSegments = 32
	maxSegment  = 256 // bytes, escaped
)

// A path in canonical form begins with "/"; its segments are percent-decoded
// and escaped again in one way. In a pattern, a segment "*" is a wildcard, and a
// literal star is %2A.

// parsePath returns the canonical form of a path pattern. No path is every path.
func parsePath(s string) (string, *SyntaxError) {
	if s == "" {
		return "/*", nil
	}
	segments := strings.Split(s[1:], "/")
	if len(segments) > maxSegments {
		return "", wrong("", "path has %d segments: at most %d", len(segments), maxSegments)
	}
	for i, seg := range segments {
		switch {
		case seg == "*", seg == "" && i == len(segments)-1:
			continue
		case seg == "**":
			return "", wrong("* at the end covers all that lies below", "** cannot be part of a path")
		case strings.Contains(seg, "*"):
			return "", wrong("a literal star is written %2A", "a wildcard stands for a whole segment of a path")
		}
		canonical, what := canonicalSegment(seg)
		if what != "" {
			return "", wrong("", "path segment %s: %s", quote(seg), what)
		}
		if len(canonical) > maxSegment {
			return "", wrong("", "path segment %s exceeds %d bytes", quote(seg), maxSegment)
		}
		segments[i] = canonical
	}
	return "/" + strings.Join(segments, "/"), nil
}

// literalPath returns the canonical form of the path of u, and whether it has
// only one reading.
func literalPath(u *url.URL) (string, bool) {
	path := u.EscapedPath()
	if path == "" {
		return "/", true
	}
	if path[0] != '/' {
		return path, false
	}
	segments := strings.Split(path[1:], "/")
	for i, seg := range segments {
		if seg == "" && i == len(segments)-1 {
			continue
		}
		canonical, what := canonicalSegment(seg)
		if what != "" {
			return path, false
		}
		segments[i] = canonical
	}
	return "/" + strings.Join(segments, "/"), true
}

// canonicalSegment decodes a segment and escapes it again, or says why servers
// may disagree about what it means.
func canonicalSegment(seg string) (canonical, what string) {
	text, err := url.PathUnescape(seg)
	if err != nil {
		return "", "bad percent escape"
	}
	if text == "" {
		return "", "empty"
	}
	if !utf8.ValidString(text) {
		return "", "not UTF-8"
	}
	if strings.ContainsAny(text, `/\`) {
		return "", "slash or backslash inside"
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return "", "control character"
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			break
		}
		if len(after) >= 2 && isHex(after[0]) && isHex(after[1]) {
			return "", "escaped twice"
		}
		rest = after
	}
	before, _, _ := strings.Cut(text, ";")
	if before = strings.TrimSpace(before); before == "." || before == ".." {
		return "", "dot segment"
	}
	return escapeSegment(text), ""
}

// escapeSegment escapes all but the characters of RFC 3986 pchar, and the star.
func escapeSegment(s string) string {
	const upper = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~!$&'()+,;=:@", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', upper[c>>4], upper[c&15]})
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// meetPaths returns the pattern of what both patterns cover, if there is
// anything. A path in canonical form is a pattern that covers itself.
func meetPaths(a, b string) (string, bool) {
	if a == b || b == "/*" {
		return a, true
	}
	if a == "/*" {
		return b, true
	}
	sa, sb := strings.Split(a[1:], "/"), strings.Split(b[1:], "/")
	openA, openB := sa[len(sa)-1] == "*", sb[len(sb)-1] == "*"
	if len(sa) < len(sb) || len(sa) == len(sb) && openA {
		sa, sb, openA, openB = sb, sa, openB, openA
	}
	// sa has at least as many segments. If sb is open at its end, its last
	// segment takes what sa has there; else the counts must be equal and sa
	// must not be open. So an empty segment, which only ends a path, never meets
	// a star that stands for one segment, which never does.
	if openB {
		sb = sb[:len(sb)-1]
	} else if len(sa) != len(sb) || openA {
		return "", false
	}
	out := append([]string(nil), sa...)
	for i, seg := range sb {
		switch have := out[i]; {
		case have == seg, seg == "*":
		case have == "*":
			out[i] = seg
		default:
			return "", false
		}
	}
	return "/" + strings.Join(out, "/"), true
}

// coversPath reports whether pattern covers all that b covers, which is a path
// or a pattern too.
func coversPath(pattern, b string) bool {
	if pattern == b {
		return true
	}
	for {
		want, restWant, moreWant := strings.Cut(pattern[1:], "/")
		have, restHave, moreHave := strings.Cut(b[1:], "/")
		switch {
		case want == "*" && !moreWant:
			return true
		case have == "*" && !moreHave, want != "*" && want != have:
			return false
		case !moreWant || !moreHave:
			return moreWant == moreHave
		}
		pattern, b = pattern[len(pattern)-len(restWant)-1:], b[len(b)-len(restHave)-1:]
	}
}

// quote shows text from outside in a message.
func quote(s string) string { return strconv.Quote(clip(s, 60)) }
