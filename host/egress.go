package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An Egress sends HTTP requests for guests. It is safe for concurrent use and
// keeps nothing between requests: no connection, no cookie.
//
// A request is sent if the call's grants cover its method and URL and every
// address that its host resolves to may be reached: metadata services never,
// private addresses only with a grant that says private. The address that was
// checked is the one that is dialled, and proxy variables of the process mean
// nothing. At most five redirects are followed. Each counts as a request and is
// judged as one, and what is refused then is refused as [abi.EgressDenied]; when it leaves its origin (scheme, host and port), only
// Accept, Accept-Language, Content-Type and User-Agent go with it, and none of these
// that carries a secret (see [Secrets]).
//
// A body is counted after decompression, which the host does unless the guest
// asks for an encoding itself, as it may in a call without secrets. Connections speak HTTP/1.1.
type Egress struct {
	wire wire
}

// NewEgress makes an egress to the network or, if replay is not nil, to recorded
// exchanges: these take the place of the resolver and the socket, and every rule
// stays.
func NewEgress(replay *Cassettes) *Egress {
	if replay != nil {
		return &Egress{wire: replay}
	}
	return &Egress{wire: newNetwork()}
}

// Bounds of a request and its answer that no limit changes.
const (
	maxURLBytes            = 8 << 10
	maxRequestHeaderBytes  = 16 << 10 // names and values
	maxResponseHeaderBytes = 64 << 10
	maxRedirects           = 5
	maxAddresses           = 32 // addresses of one name
)

// A wire resolves names and carries requests: the network or a cassette.
type wire interface {
	resolve(ctx context.Context, h *hop) ([]netip.Addr, error)
	// send returns an answer whose body is not yet read. It connects to one of
	// addrs and to nothing else.
	send(ctx context.Context, h *hop, addrs []netip.Addr) (*http.Response, error)
	recorded() bool
}

// A hop is one request of the chain that redirects make.
type hop struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte

	secrets []usedSecret // in header
}

// An answer is an HTTP answer with all of its body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// httpUse is what a call has used of its egress.
type httpUse struct {
	requests int
}

// errNotRecorded is what a cassette says of a request it does not hold.
var errNotRecorded = errors.New("no recorded answer")

// send answers a request of the guest's, following redirects.
func (u *use) send(r *abi.HTTPRequest, body []byte, trace *HostCall) (*answer, *refusal) {
	method := strings.ToUpper(r.Method)
	if method == "" {
		method = http.MethodGet
	}
	trace.Detail, trace.Sent = printable(method+" "+u.clean(r.URL), 300), u.body(body)
	to, err := parseURL(r.URL)
	if err != nil {
		return nil, refuse(abi.EgressDenied, "http: %v", err)
	}
	if !validToken(method) || method == http.MethodConnect || method == http.MethodTrace {
		return nil, refuse(abi.EgressDenied, "http: method %q cannot be sent", printable(method, 40))
	}
	trace.Need = capability.NeedHTTP(method, to)
	if u.guard || !u.live || u.call.Access.Egress == nil {
		return nil, missing(trace.Need)
	}
	header, err := requestHeader(r.Headers)
	if err != nil {
		return nil, refuse(abi.EgressDenied, "http: %v", err)
	}
	h := &hop{method: method, url: to, header: header, body: body}
	if refused := u.putSecrets(h, r.Secrets); refused != nil {
		return nil, refused
	}
	if int64(len(body)) > u.limits.HTTPBytes {
		return nil, refuse(abi.EgressLimit, "http: body of %d bytes exceeds %d", len(body), u.limits.HTTPBytes)
	}
	wire := u.call.Access.Egress.wire
	trace.Recorded = wire.recorded()
	var from *url.URL // what redirected to h
	for redirects := 0; ; redirects++ {
		response, refused := u.hop(wire, h)
		switch {
		case refused == nil:
		case from != nil && (refused.code == abi.CapabilityDenied || refused.code == abi.EgressDenied):
			return nil, ledAway(from, h.url, redirects+1, refused)
		default:
			return nil, refused
		}
		trace.Status = response.StatusCode
		next, err := u.redirect(h, response)
		switch {
		case err != nil:
			response.Body.Close()
			return nil, refuse(abi.EgressDenied, "http: redirect: %v", err)
		case next == nil:
			return u.read(h, response, trace)
		}
		response.Body.Close()
		if redirects == maxRedirects {
			return nil, refuse(abi.EgressLimit, "http: more than %d redirects", maxRedirects)
		}
		from, h = h.url, next
	}
}

// ledAway is the refusal of a request that a redirect asked for, which was judged and
// not sent. hop counts the requests of the chain, from 1.
func ledAway(from, to *url.URL, hop int, r *refusal) *refusal {
	why := strings.TrimPrefix(r.message, "http: ")
	return &refusal{abi.EgressDenied, fmt.Sprintf("http: %s://%s redirected to %s://%s, hop %d, which was not sent: %s",
		from.Scheme, from.Host, to.Scheme, to.Host, hop, why), r.need}
}

// hop judges one request and sends it.
func (u *use) hop(wire wire, h *hop) (*http.Response, *refusal) {
	need := capability.NeedHTTP(h.method, h.url)
	if !u.grants().HTTP(h.method, h.url) {
		return nil, missing(need)
	}
	if u.http.requests >= u.limits.HTTPRequests {
		return nil, refuse(abi.EgressLimit, "http: more than %d requests", u.limits.HTTPRequests)
	}
	u.http.requests++
	addrs, err := wire.resolve(u.lend(), h)
	if err != nil {
		return nil, u.noAnswer(h, err)
	}
	if len(addrs) == 0 || len(addrs) > maxAddresses {
		return nil, refuse(abi.EgressDenied, "http: %s has %d addresses, want 1 to %d", h.url.Hostname(), len(addrs), maxAddresses)
	}
	for i, addr := range addrs {
		addr = addr.Unmap().WithZone("")
		addrs[i] = addr
		switch {
		case capability.MetadataAddr(addr):
			return nil, &refusal{abi.EgressDenied, "http: " + h.url.Hostname() + " is a metadata service", need}
		case capability.PrivateAddr(addr):
			// NeedHTTP cannot know what a name resolves to.
			if public := "http " + h.method + " "; !strings.HasPrefix(need, public+"private ") {
				need = public + "private " + strings.TrimPrefix(need, public)
			}
			if !u.grants().HTTPPrivate(h.method, h.url) {
				r := missing(need)
				r.code = abi.EgressDenied
				return nil, r
			}
		}
	}
	u.used = listed(u.used, need)
	for _, s := range h.secrets {
		// What anybody between here and there could read is no place for a secret.
		if h.url.Scheme != "https" && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !capability.PrivateAddr(a) }) {
			return nil, refuse(abi.EgressDenied, "http: a secret goes to %s over https only", h.url.Host)
		}
		u.used = listed(u.used, s.need)
	}
	response, err := wire.send(u.lend(), h, addrs)
	if err != nil {
		return nil, u.noAnswer(h, err)
	}
	return response, nil
}

// noAnswer refuses because the wire failed. The guest reads no address.
func (u *use) noAnswer(h *hop, err error) *refusal {
	if errors.Is(err, errNotRecorded) {
		return refuse(abi.NoRecordedAnswer, "http: no recorded answer for %s %s", h.method, h.url)
	}
	u.checkTime()
	u.operator.report(slog.LevelInfo, "egress failed", "host", h.url.Host, "err", err)
	return refuse(abi.EgressLimit, "http: no usable answer from %s", h.url.Host)
}

// read reads the body of the last answer.
func (u *use) read(h *hop, response *http.Response, trace *HostCall) (*answer, *refusal) {
	defer response.Body.Close()
	encoded := slices.ContainsFunc(response.Header.Values("Content-Encoding"), func(s string) bool { return s != "" && !strings.EqualFold(s, "identity") })
	// Whichever request of the call sent the secret: a server may give back later what it was sent.
	if encoded && !u.call.Access.Secrets.none() {
		return nil, refuse(abi.EgressDenied, "http: answer from %s is encoded, and cannot be searched for secrets", h.url.Host)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, u.limits.HTTPBytes+1))
	if err != nil {
		return nil, u.noAnswer(h, err)
	}
	if int64(len(body)) > u.limits.HTTPBytes {
		return nil, refuse(abi.EgressLimit, "http: answer from %s exceeds %d bytes", h.url.Host, u.limits.HTTPBytes)
	}
	trace.Bytes = int64(len(body))
	a := &answer{status: response.StatusCode, header: response.Header, body: body}
	u.scrubAnswer(a, trace)
	trace.Got = u.body(a.body)
	if int64(len(a.body)) > u.limits.HTTPBytes { // names may be longer than values
		return nil, refuse(abi.EgressLimit, "http: answer from %s exceeds %d bytes", h.url.Host, u.limits.HTTPBytes)
	}
	return a, nil
}

// redirect returns the request that an answer asks for, or nil if it asks for
// none (RFC 9110, section 15.4).
func (u *use) redirect(h *hop, response *http.Response) (*hop, error) {
	switch response.StatusCode {
	case 301, 302, 303, 307, 308:
	default:
		return nil, nil
	}
	location := response.Header.Get("Location")
	if location == "" {
		return nil, nil
	}
	if _, found := u.call.Access.Secrets.scrub(location); found != nil {
		return nil, errors.New("location holds a secret")
	}
	if strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r == '\\' || r > '~' }) {
		return nil, fmt.Errorf("location %q has characters that no URL has", printable(location, 200))
	}
	to, err := h.url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("location %q is no URL", printable(location, 200))
	}
	if to, err = parseURL(to.String()); err != nil {
		return nil, err
	}
	next := &hop{method: h.method, url: to, header: h.header.Clone(), body: h.body, secrets: h.secrets}
	if response.StatusCode < 307 && h.method != http.MethodGet && h.method != http.MethodHead {
		next.method, next.body = http.MethodGet, nil
		next.header.Del("Content-Type")
	}
	if to.Scheme != h.url.Scheme || to.Host != h.url.Host {
		maps.DeleteFunc(next.header, func(name string, _ []string) bool {
			return !slices.Contains(harmlessHeaders, name)
		})
		for _, s := range h.secrets {
			next.header.Del(s.header)
		}
		next.secrets = nil
	}
	return next, nil
}

// harmlessHeaders may go to another origin than the guest named.
var harmlessHeaders = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

// hostHeaders are the host's to write: they say where a request goes, how long
// it is and what happens to the connection.
var hostHeaders = []string{"Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "Content-Length", "Expect", "Via", "Forwarded"}

func hostsOwn(canonical string) bool {
	return slices.Contains(hostHeaders, canonical) || strings.HasPrefix(canonical, "Proxy-")
}

func requestHeader(headers map[string]string) (http.Header, error) {
	header := http.Header{"User-Agent": {"sandboxd"}}
	seen := map[string]bool{}
	total := 0
	for name, value := range headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validToken(name):
			return nil, fmt.Errorf("header name %q is not a token", printable(name, 80))
		case hostsOwn(canonical):
			return nil, fmt.Errorf("header %s is the host's to write", canonical)
		case strings.ContainsFunc(value, func(r rune) bool { return control(r) && r != '\t' }):
			return nil, fmt.Errorf("header %s has a control character", canonical)
		case seen[canonical]:
			return nil, fmt.Errorf("header %s is there twice", canonical)
		}
		seen[canonical] = true
		if total += len(name) + len(value); total > maxRequestHeaderBytes {
			return nil, fmt.Errorf("headers exceed %d bytes", maxRequestHeaderBytes)
		}
		header.Set(canonical, value)
	}
	return header, nil
}

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// parseURL parses a URL in the one spelling that grants, resolver and server all
// read alike, and refuses the others: user information, hosts that are not names
// or addresses in their usual form, dot segments.
func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURLBytes {
		return nil, fmt.Errorf("URL of %d bytes exceeds %d", len(raw), maxURLBytes)
	}
	shown := printable(raw, 200)
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == '\\' || r > '~' }) {
		return nil, fmt.Errorf("URL %q has characters that no URL has", shown)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("URL %q cannot be parsed", shown)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("URL %q: scheme is not http or https", shown)
	case u.User != nil:
		return nil, fmt.Errorf("URL of %s has user information", u.Host)
	case u.Opaque != "" || u.Host == "":
		return nil, fmt.Errorf("URL %q has no host", shown)
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if err := validHost(host); err != nil {
		return nil, fmt.Errorf("URL %q: %v", shown, err)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := strings.TrimLeft(u.Port(), "0")
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return nil, fmt.Errorf("URL %q: port is not 1 to 65535", shown)
	}
	u.Host = host
	if port != "" && !(u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80") {
		u.Host += ":" + port
	}
	for _, segment := range strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return nil, fmt.Errorf("URL %q has dot segments", shown)
		}
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// validHost reports why host, in lower case, is neither an address in its usual
// form nor a name of ASCII letters, digits, hyphens and underscores.
func validHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return errors.New("address has a zone")
		}
		return nil
	}
	if len(host) > 253 {
		return fmt.Errorf("host of %d bytes exceeds 253", len(host))
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("host label of %d bytes: want 1 to 63", len(label))
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_')
		}) {
			return errors.New("host is not a name or address")
		}
	}
	// 127.1 and 0x7f000001 are addresses to some resolvers and names to others.
	if last := labels[len(labels)-1]; '0' <= last[0] && last[0] <= '9' {
		return errors.New("host is a number but not an address in its usual form")
	}
	return nil
}
