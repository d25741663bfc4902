package capability

import (
	"strconv"
	"strings"
)

// The kinds of capability, see [Capability.Kind].
const (
	kindHTTP     = "http"
	kindState    = "state"
	kindArtifact = "artifact"
	kindMemory   = "memory"
	kindSecret   = "secret"
	kindKV       = "kv"
)

// kinds lists every kind with its verbs, in the order in which they are printed.
// A kind without verbs is a line of one word.
var kinds = []struct {
	name  string
	verbs []string
}{
	{kindHTTP, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}},
	{kindState, []string{"read", "write"}},
	{kindArtifact, []string{"read", "write"}},
	{kindMemory, []string{"search"}},
	{kindSecret, []string{"use"}},
	{kindKV, []string{"read", "write"}},
	{"clock", nil},
	{"random", nil},
	{"log", nil},
	{"emit", nil},
	{"confirm", nil},
	{"transfer", nil},
	{"escalate", nil},
	{"skip-summary", nil},
}

// verbsOf returns the verbs of a kind and whether there is such a kind.
func verbsOf(kind string) ([]string, bool) {
	for _, k := range kinds {
		if k.name == kind {
			return k.verbs, true
		}
	}
	return nil, false
}

// A Capability is one line: one kind of access with its constraint. Values come
// from [Parse]; two are equal (==) exactly if their texts are. The zero
// Capability is no line: it prints as nothing and no set grants it.
type Capability struct {
	kind  string
	verbs verbs // set of the kind's verbs; zero for a kind without verbs

	private bool   // http
	scheme  string // http: "https" or "http"
	host    string // http, secret: canonical pattern; IPv6 without brackets
	port    uint16 // http
	path    string // http: canonical pattern, begins with "/"
	name    string // state, artifact, secret: pattern with its scope
}

// verbs is a set of verbs of one kind: bit i is the i-th in kinds.
type verbs uint8

// verbBit returns the set that holds one verb; it is empty if the kind does not
// have it.
func verbBit(kind, verb string) verbs {
	all, _ := verbsOf(kind)
	for i, v := range all {
		if v == verb {
			return 1 << i
		}
	}
	return 0
}

// list returns the verbs in vs in printing order.
func (vs verbs) list(kind string) []string {
	var out []string
	all, _ := verbsOf(kind)
	for i, v := range all {
		if vs&(1<<i) != 0 {
			out = append(out, v)
		}
	}
	return out
}

// Kind returns the first word of the line, such as "http" or "skip-summary".
func (c Capability) Kind() string { return c.kind }

// String returns the line in canonical form: verbs in a fixed order, hosts in
// lower case, scheme and port only where they are not https and the scheme's
// own, the path always. Parsing it gives c again.
func (c Capability) String() string {
	var b strings.Builder
	b.WriteString(c.kind)
	if c.verbs != 0 {
		b.WriteString(" " + strings.Join(c.verbs.list(c.kind), ","))
	}
	switch c.kind {
	case kindHTTP:
		b.WriteByte(' ')
		if c.private {
			b.WriteString("private ")
		}
		b.WriteString(target(c.scheme, c.host, c.port) + c.path)
	case kindState, kindArtifact:
		b.WriteString(" " + c.name)
	case kindSecret:
		b.WriteString(" " + c.name + " at " + bracket(c.host))
	}
	return b.String()
}

// Wide reports whether a reader should look twice: the line reaches any number
// of hosts ("**", or a wildcard on a private network), values that all users
// share ("app:"), any secret, or the course of the conversation itself (transfer
// and escalate).
func (c Capability) Wide() bool {
	switch c.kind {
	case kindHTTP:
		return strings.HasPrefix(c.host, "**") || c.private && strings.Contains(c.host, "*")
	case kindSecret:
		return strings.HasPrefix(c.host, "**") || c.name == "*"
	case kindState:
		return strings.HasPrefix(c.name, "app:")
	case "transfer", "escalate":
		return true
	}
	return false
}

// meet returns the lines that together allow what both a and b allow. There is
// more than one only where an overlap of two name patterns adds single names.
func meet(a, b Capability) []Capability {
	if a.kind != b.kind || a.scheme != b.scheme || a.port != b.port {
		return nil
	}
	c := a
	c.verbs &= b.verbs
	if c.verbs == 0 && a.verbs|b.verbs != 0 {
		return nil
	}
	c.private = a.private && b.private
	if c.host != b.host {
		var ok bool
		if c.host, ok = meetHosts(a.host, b.host); !ok {
			return nil
		}
	}
	if c.kind == kindHTTP && needsPrivate(c.host) && !c.private {
		return nil
	}
	if c.path != b.path {
		var ok bool
		if c.path, ok = meetPaths(a.path, b.path); !ok {
			return nil
		}
	}
	if c.name == b.name {
		return []Capability{c}
	}
	var out []Capability
	for _, name := range meetNames(c.kind, a.name, b.name) {
		c.name = name
		out = append(out, c)
	}
	return out
}

// inside reports whether b allows all that a allows.
func inside(a, b Capability) bool {
	return a.kind == b.kind && a.verbs&^b.verbs == 0 && (b.private || !a.private) &&
		a.scheme == b.scheme && a.port == b.port &&
		coversName(a.kind, b.name, a.name) && coversHost(b.host, a.host) && coversPath(b.path, a.path)
}

// target writes scheme, host and port as a line does: only what is not implied.
func target(scheme, host string, port uint16) string {
	s := bracket(host)
	if scheme != "https" {
		s = scheme + "://" + s
	}
	if port != defaultPort(scheme) {
		s += ":" + strconv.Itoa(int(port))
	}
	return s
}

// bracket encloses an IPv6 address.
func bracket(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func defaultPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}
