package host

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Secrets are values that the host puts into requests for guests, which name them
// and never see them. The zero value and nil have none. It is safe for concurrent
// use, and prints as its names.
//
// A secret goes into a header of a request whose host a grant "secret use NAME at
// HOST" covers, over https or, to a private address, over http. It follows
// redirects within the origin (scheme, host and port) and no others. Every answer
// that a call with these secrets gets, whether or not it used one, and all that
// its guest logs, is searched for all of them, as they are and in the encodings
// that servers echo in (base64 at any alignment, hexadecimal, percent, JSON, HTML);
// what is found reads "[secret NAME]". So such a call asks for no answer that is
// compressed or in pieces, and gets none. The search is a second lock: a server that
// a secret is granted for can hide it from every search.
type Secrets struct {
	values map[string]string
	search *strings.Replacer
}

// Bounds of secrets.
const (
	minSecretBytes = 8 // shorter ones would be found in text that is none
	maxSecretBytes = 8 << 10
	maxSecrets     = 256
	maxSecretsUsed = 8 // in one request
)

// NewSecrets makes secrets of values by name. A name is 1 to 64 letters, digits
// and underscores. A value is 8 bytes to 8 KiB of UTF-8 without control
// characters, as a header can carry it. There are at most 256. Errors name the secret, never its
// value.
func NewSecrets(values map[string]string) (*Secrets, error) {
	if len(values) > maxSecrets {
		return nil, fmt.Errorf("%d secrets exceed %d", len(values), maxSecrets)
	}
	s := &Secrets{values: maps.Clone(values)}
	type pair struct{ form, mark string }
	var pairs []pair
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if _, err := capability.Parse("secret use " + name + " at **"); err != nil || strings.Contains(name, "*") {
			return nil, fmt.Errorf("secret %q: want a name of 1 to 64 letters, digits and _", printable(name, 80))
		}
		switch {
		case len(value) < minSecretBytes || len(value) > maxSecretBytes:
			return nil, fmt.Errorf("secret %s: value of %d bytes: want %d to %d", name, len(value), minSecretBytes, maxSecretBytes)
		case !utf8.ValidString(value):
			return nil, fmt.Errorf("secret %s: value is not UTF-8", name)
		case strings.ContainsFunc(value, control) || strings.TrimSpace(value) != value:
			return nil, fmt.Errorf("secret %s: value has control characters, or begins or ends with a blank", name)
		}
		for _, form := range forms(value) {
			pairs = append(pairs, pair{form, secretMark(name)})
		}
	}
	// Where several begin at one place the first one counts: the longest.
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(len(b.form), len(a.form)) })
	var list []string
	for _, p := range pairs {
		list = append(list, p.form, p.mark)
	}
	s.search = strings.NewReplacer(list...)
	return s, nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

func secretMark(name string) string { return "[secret " + name + "]" }

// forms returns how a value may be spelled in an answer.
func forms(value string) []string {
	all := []string{value, hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))), html.EscapeString(value)}
	percent := []string{url.QueryEscape(value), url.PathEscape(value), strings.ReplaceAll(url.QueryEscape(value), "+", "%20")}
	var each strings.Builder
	for _, b := range []byte(value) {
		fmt.Fprintf(&each, "%%%02X", b)
	}
	percent = append(percent, each.String())
	for _, p := range percent {
		all = append(all, p, lowerEscapes(p))
	}
	jsons := []string{strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(value)} // no more than it must
	for _, escapeHTML := range []bool{true, false} {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(escapeHTML)
		_ = encoder.Encode(value) // texts always encode
		jsons = append(jsons, text.String()[1:text.Len()-len("\"\n")])
	}
	for _, text := range jsons {
		all = append(all, text, strings.ReplaceAll(text, "/", `\/`))
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		all = append(all, encoding.EncodeToString([]byte(value)))
		// Inside of something longer the value begins at one of three places in a
		// group of characters. Those that it shares with its neighbours are left out.
		for before := range 3 {
			text := encoding.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, before), value...))
			all = append(all, text[(before*8+5)/6:(before+len(value))*8/6])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lowerEscapes writes the hexadecimal digits of percent escapes in lower case.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

// String returns the names.
func (s *Secrets) String() string {
	if s == nil {
		return "secrets[]"
	}
	return fmt.Sprintf("secrets%v", slices.Sorted(maps.Keys(s.values)))
}

// GoString returns the names.
func (s *Secrets) GoString() string { return s.String() }

// none reports whether there is nothing to search for.
func (s *Secrets) none() bool { return s == nil || len(s.values) == 0 }

// scrub replaces every secret in a text by its name, and returns the names of
// those that it found, sorted.
func (s *Secrets) scrub(text string) (string, []string) {
	if s == nil || s.search == nil {
		return text, nil
	}
	clean := s.search.Replace(text)
	if clean == text {
		return text, nil
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		if mark := secretMark(name); strings.Count(clean, mark) > strings.Count(text, mark) {
			found = append(found, name)
		}
	}
	return clean, found
}

// Find returns where in a JSON document secrets stand, as they are or encoded, in
// the order of the document's texts with members sorted by name; it stops at
// [abi.MaxSecretHits]. What is no JSON is searched as one text. Find does not keep
// the document and is safe for concurrent use; nil Secrets find nothing.
func (s *Secrets) Find(document json.RawMessage) []abi.SecretHit {
	if s == nil || s.search == nil {
		return nil
	}
	var hits []abi.SecretHit
	look := func(text, at string, key bool) {
		_, names := s.scrub(text)
		for _, name := range names {
			if len(hits) < abi.MaxSecretHits {
				hits = append(hits, abi.SecretHit{Name: name, At: at, Key: key})
			}
		}
	}
	tree, err := abi.Unmarshal(document)
	if err != nil {
		look(string(document), "", false)
		return hits
	}
	eachText(tree, "", look)
	return hits
}

// eachText calls f for every text and name of a generic value, with a JSON pointer.
func eachText(v any, at string, f func(text, at string, key bool)) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			here := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			f(name, here, true)
			eachText(v[name], here, f)
		}
	case []any:
		for i, e := range v {
			eachText(e, fmt.Sprintf("%s/%d", at, i), f)
		}
	case string:
		f(v, at, false)
	}
}

// unsearched are headers that make an answer one that cannot be searched for
// secrets: compressed, or in pieces.
var unsearched = []string{"Accept-Encoding", "Range", "If-Range"}

// A usedSecret is a secret in a header of a request.
type usedSecret struct {
	header string
	need   string // the grant
}

// putSecrets writes the secrets that a guest names into the header of a request. A
// name that is not granted and one that does not exist read the same.
func (u *use) putSecrets(h *hop, uses []abi.UseSecret) *refusal {
	if len(uses) > maxSecretsUsed {
		return refuse(abi.EgressDenied, "http: %d secrets exceed %d in one request", len(uses), maxSecretsUsed)
	}
	host := h.url.Hostname()
	shown := host
	if strings.Contains(host, ":") {
		shown = "[" + host + "]"
	}
	for _, use := range uses {
		need := "secret use " + use.Secret + " at " + shown
		var value string
		var known bool
		if s := u.call.Access.Secrets; s != nil {
			value, known = s.values[use.Secret]
		}
		if !known || !u.grants().Secret(use.Secret, host) {
			return missing(need)
		}
		name := http.CanonicalHeaderKey(use.Header)
		switch {
		case !validToken(use.Header):
			return refuse(abi.EgressDenied, "http: header name %q is not a token", printable(use.Header, 80))
		case hostsOwn(name) || slices.Contains(unsearched, name):
			return refuse(abi.EgressDenied, "http: header %s cannot carry a secret", name)
		case h.header[name] != nil && name != "User-Agent" || slices.ContainsFunc(h.secrets, func(u usedSecret) bool { return u.header == name }):
			return refuse(abi.EgressDenied, "http: header %s is there twice", name)
		case strings.ContainsFunc(use.Prefix, control) || len(use.Prefix) > 256:
			return refuse(abi.EgressDenied, "http: prefix of secret %s: want at most 256 bytes without control characters", use.Secret)
		}
		h.header.Set(name, use.Prefix+value)
		h.secrets = append(h.secrets, usedSecret{name, need})
	}
	if u.call.Access.Secrets.none() {
		return nil
	}
	for _, name := range unsearched {
		if h.header[name] != nil {
			return refuse(abi.EgressDenied, "http: header %s: the app has secrets, for which such an answer cannot be searched", name)
		}
	}
	return nil
}

// scrubAnswer takes secrets out of an answer.
func (u *use) scrubAnswer(a *answer, trace *HostCall) {
	take := func(text string) string {
		clean, found := u.call.Access.Secrets.scrub(text)
		for _, name := range found {
			trace.Scrubbed = listed(trace.Scrubbed, name)
		}
		return clean
	}
	header := make(http.Header, len(a.header))
	for name, values := range a.header {
		name = take(name)
		for _, v := range values {
			header[name] = append(header[name], take(v))
		}
	}
	a.header = header
	if body := take(string(a.body)); len(trace.Scrubbed) > 0 {
		a.body = []byte(body)
	}
}
