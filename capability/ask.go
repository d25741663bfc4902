package capability

import (
	"net/url"
	"strconv"
	"strings"
)

// HTTP reports whether s allows a request with this method to u. The method is
// compared as it is written; an empty one is not GET. u is the URL that will be
// requested, parsed once; it is refused whatever s grants if its scheme is not
// http or https, if it has a user name or an opaque part, a backslash or control
// character, a host that is malformed or a metadata service, or a path with more
// than one reading (see the package comment). Query and fragment are not
// compared.
//
// A name may resolve to any address: before connecting, the caller refuses every
// address for which [MetadataAddr] holds, and every one for which [PrivateAddr]
// holds unless [Set.HTTPPrivate] allows it. Each redirect is a request of its own.
func (s Set) HTTP(method string, u *url.URL) (ok bool) {
	r, ok := request(u)
	return ok && s.http(method, r, false)
}

// HTTPPrivate reports whether a line with "private" allows the request, so that
// the host of u may have a private address. It implies [Set.HTTP].
func (s Set) HTTPPrivate(method string, u *url.URL) bool {
	r, ok := request(u)
	return ok && s.http(method, r, true)
}

func (s Set) http(method string, r Capability, private bool) bool {
	bit := verbBit(kindHTTP, method)
	private = private || needsPrivate(r.host)
	for _, c := range s.lines {
		if c.kind != kindHTTP || c.verbs&bit == 0 || private && !c.private || c.scheme != r.scheme || c.port != r.port {
			continue
		}
		if coversHost(c.host, r.host) && coversPath(c.path, r.path) {
			return true
		}
	}
	return false
}

// request returns scheme, host, port and path of u in canonical form, and
// whether any line could cover them.
func request(u *url.URL) (Capability, bool) {
	if u == nil || u.Opaque != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return Capability{}, false
	}
	if strings.ContainsFunc(u.RawQuery+u.Fragment, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return Capability{}, false
	}
	r := Capability{kind: kindHTTP, scheme: u.Scheme, port: defaultPort(u.Scheme)}
	// Hostname and Port take apart whatever they are given; put together again
	// they must be what was written.
	name, port := u.Hostname(), u.Port()
	written := name
	if strings.Contains(name, ":") {
		written = "[" + name + "]"
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' {
			return Capability{}, false
		}
		r.port = uint16(n)
		written += ":" + port
	}
	if u.Host != written {
		return Capability{}, false
	}
	var ok bool
	if r.host, ok = literalHost(name); !ok {
		return Capability{}, false
	}
	r.path, ok = literalPath(u)
	return r, ok
}

// NeedHTTP returns the narrowest line that would allow the request, for error
// texts and the audit record, such as "http GET api.weather.example/v1/daily". If
// no line could, it returns a text that says what was asked for and that [Parse]
// refuses. Control characters are escaped and the text is bounded either way.
func NeedHTTP(method string, u *url.URL) string {
	const mostLine, mostText = 1024, 200
	verb := verbBit(kindHTTP, method)
	if r, ok := request(u); ok && verb != 0 {
		r.verbs, r.private = verb, needsPrivate(r.host)
		if line := r.String(); len(line) <= mostLine {
			return line
		}
	}
	if verb == 0 {
		method = quote(method)
	}
	text := "nowhere"
	if u != nil {
		text = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, Opaque: u.Opaque}).String()
	}
	// No host or scheme begins with a quote, so this is never a line, not even
	// when the host that was asked for is "*.example.com".
	return "http " + method + " " + strconv.Quote(clip(text, mostText))
}

// StateRead reports whether s allows reading a state key, spelled as lines
// spell it: "session:cart.items", "user:x", "app:x", "temp:x".
func (s Set) StateRead(key string) bool { return s.name(kindState, "read", key) }

// StateWrite reports whether s allows setting or deleting a state key, spelled
// as for [Set.StateRead].
func (s Set) StateWrite(key string) bool { return s.name(kindState, "write", key) }

// ArtifactRead reports whether s allows reading the artifact, and seeing its
// name. Names of the user's own artifacts begin with "user:".
func (s Set) ArtifactRead(name string) bool { return s.name(kindArtifact, "read", name) }

// ArtifactWrite reports whether s allows saving a version of the artifact.
func (s Set) ArtifactWrite(name string) bool { return s.name(kindArtifact, "write", name) }

func (s Set) name(kind, verb, name string) bool {
	if strings.Contains(name, "*") || check(kind, name) != "" {
		return false
	}
	bit := verbBit(kind, verb)
	for _, c := range s.lines {
		if c.kind == kind && c.verbs&bit != 0 && coversName(kind, c.name, name) {
			return true
		}
	}
	return false
}

// Secret reports whether the host may put the named secret into a request to
// host, which is what [net/url.URL.Hostname] returns for that request. Whether the
// request itself is allowed is for [Set.HTTP].
func (s Set) Secret(name, host string) bool {
	host, ok := literalHost(host)
	if !ok || strings.Contains(name, "*") || checkSecret(name) != "" {
		return false
	}
	for _, c := range s.lines {
		if c.kind == kindSecret && coversGlob(c.name, name) && coversHost(c.host, host) {
			return true
		}
	}
	return false
}

// KVRead reports whether s allows reading the counters and values of kv.
func (s Set) KVRead() bool { return s.kv("read") }

// KVWrite reports whether s allows changing them. It does not imply reading.
func (s Set) KVWrite() bool { return s.kv("write") }

func (s Set) kv(verb string) bool {
	bit := verbBit(kindKV, verb)
	for _, c := range s.lines {
		if c.kind == kindKV && c.verbs&bit != 0 {
			return true
		}
	}
	return false
}
