package capability

import (
	"net/netip"
	"strings"
)

// Bounds of host names, RFC 1035 section 2.3.4.
const (
	maxHost  = 253
	maxLabel = 63
)

// parseHost returns the canonical form of a host pattern: a canonical IP
// address without brackets, or labels in lower case, some of them wildcards.
func parseHost(s string) (string, *SyntaxError) {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		inner := s[1 : len(s)-1]
		if a, ok := literalAddr(lowerASCII(inner)); !ok || !a.Is6() {
			return "", wrong("write the shortest form, without a zone", "%q is no canonical IPv6 address", clip(inner, 60))
		}
		s = inner
	}
	s = lowerASCII(s)
	if a, ok := literalAddr(s); ok {
		if MetadataAddr(a) {
			return "", wrong("", "%s belongs to a metadata service and cannot be granted", bracket(s))
		}
		return s, nil
	}
	s = strings.TrimSuffix(s, ".")
	if what, hint := checkHost(s); what != "" {
		return "", wrong(hint, "%s", what)
	}
	return s, nil
}

// checkHost says what is wrong with a pattern of labels in lower case, or
// nothing. A pattern that it refuses covers no host that can be asked for.
func checkHost(s string) (what, hint string) {
	switch {
	case s == "":
		return "no host", ""
	case s == "**":
		return "", ""
	case len(strings.Replace(s, "**", "*", 1)) > maxHost: // a wildcard is a byte at least
		return "host name exceeds 253 bytes", ""
	}
	labels := strings.Split(s, ".")
	n := len(labels)
	for i, label := range labels {
		switch {
		case label == "*" || label == "**":
			if i >= n-2 {
				return "a wildcard may not stand directly under a single label", "name the host, or *.example.com"
			}
			if label == "**" && i > 0 {
				return "** may only stand in front", "use * for one label"
			}
			if i == 1 && labels[0] == "**" {
				return "* may not follow **", "** alone covers one label or more"
			}
		case strings.Contains(label, "*"):
			return "a wildcard stands for a whole label", "*.example.com"
		case !validLabel(label):
			return "host label " + quote(label) + " is not allowed", "labels are 1 to 63 of a-z 0-9 - _; other scripts are written in their xn-- form"
		}
	}
	if numeric(labels[n-1]) {
		return quote(s) + " is no canonical IP address", "write an IPv4 address as four decimal numbers"
	}
	if MetadataHost(strings.TrimPrefix(strings.TrimPrefix(s, "**."), "*.")) {
		return s + " belongs to a metadata service and cannot be granted", ""
	}
	return "", ""
}

// literalHost returns the canonical form of a host that is asked for, as
// [net/url.URL.Hostname] returns it, and whether anything could grant it: it is
// well-formed and no metadata service.
func literalHost(s string) (string, bool) {
	s = lowerASCII(s)
	if a, ok := literalAddr(s); ok {
		return s, !MetadataAddr(a)
	}
	s = strings.TrimSuffix(s, ".")
	if strings.Contains(s, "*") {
		return s, false
	}
	what, _ := checkHost(s)
	return s, what == ""
}

// literalAddr parses an address that is written in its one canonical form:
// no zone, no IPv4 inside IPv6, no leading zeros, the shortest IPv6 text.
func literalAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == s
}

// needsPrivate reports whether a host pattern only has private addresses as far
// as its text tells: a private address, localhost or below it (RFC 6761
// section 6.3). Lines without "private" cannot hold or cover it.
func needsPrivate(host string) bool {
	if isAddr(host) {
		a, err := netip.ParseAddr(host)
		return err != nil || PrivateAddr(a)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// meetHosts returns the pattern of what both patterns cover, if there is
// anything. A plain host is a pattern that covers itself.
func meetHosts(a, b string) (string, bool) {
	if a == b {
		return a, true
	}
	if isAddr(a) || isAddr(b) { // no wildcard covers an address
		return "", false
	}
	if a == "**" {
		return b, true
	}
	if b == "**" {
		return a, true
	}
	la, lb := strings.Split(a, "."), strings.Split(b, ".")
	anyA, anyB := la[0] == "**", lb[0] == "**"
	if len(la) < len(lb) || len(la) == len(lb) && anyA {
		la, lb, anyA, anyB = lb, la, anyB, anyA
	}
	// la has at least as many labels. If lb is open in front, its "**" takes
	// what la has there; else the counts must be equal and la must not be open.
	if anyB {
		lb = lb[1:]
	} else if len(la) != len(lb) || anyA {
		return "", false
	}
	out := append([]string(nil), la...)
	shift := len(la) - len(lb)
	for i, label := range lb {
		switch have := out[shift+i]; {
		case have == label || label == "*":
		case have == "*":
			out[shift+i] = label
		default:
			return "", false
		}
	}
	host := strings.Join(out, ".")
	what, _ := checkHost(host) // too long, or a metadata service: nothing to cover
	return host, what == ""
}

// coversHost reports whether pattern covers all that b covers, which is a host
// or a pattern too.
func coversHost(pattern, b string) bool {
	if pattern == b {
		return true
	}
	if isAddr(pattern) || isAddr(b) {
		return false
	}
	for {
		i, j := strings.LastIndexByte(pattern, '.'), strings.LastIndexByte(b, '.')
		want, have := pattern[i+1:], b[j+1:]
		switch {
		case want == "**": // stands in front, and b has a label left
			return true
		case have == "**", want != have && want != "*":
			return false
		case i < 0 || j < 0:
			return i < 0 && j < 0
		}
		pattern, b = pattern[:i], b[:j]
	}
}

// isAddr reports whether a canonical host is an address: names have no colon
// and do not end in a number.
func isAddr(host string) bool {
	return strings.Contains(host, ":") || host != "" && numeric(host[strings.LastIndexByte(host, '.')+1:])
}

func validLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// numeric reports whether resolvers may read a name that ends in this label as
// an IPv4 address (WHATWG URL, "ends in a number").
func numeric(label string) bool {
	digits := strings.TrimPrefix(label, "0x")
	set := "0123456789"
	if digits != label {
		set += "abcdef"
	}
	return strings.Trim(digits, set) == ""
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
