// Package egressallow is the first-party guard that keeps web addresses to a
// list. It judges calls: every address in the arguments must be on the list, and
// every http grant of the call is narrowed to it. It is the second lock: the
// host's own dialler checks every connection whether or not this guard is there.
package egressallow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say which addresses are allowed. An empty list allows nothing.
type Settings struct {
	// Hosts are exact names, "*.name" for one more label, "**.name" for one or
	// more. An IP address is allowed only by its own, canonical text.
	Hosts   []string `json:"hosts" doc:"allowed hosts: exact, *.name for one label, **.name for any depth" max:"256"`
	Schemes []string `json:"schemes,omitempty" doc:"allowed schemes; default https"`
	Ports   []int    `json:"ports,omitempty" doc:"allowed ports; default 443"`
}

// Check refuses patterns that would allow more than a reader expects.
func Check(s Settings) error {
	var errs []error
	for _, h := range s.Hosts {
		name := strings.TrimPrefix(strings.TrimPrefix(h, "**."), "*.")
		_, err := netip.ParseAddr(h)
		switch {
		case err == nil:
		case name == "" || strings.ContainsAny(name, "*/:@ ") || name != strings.ToLower(name):
			errs = append(errs, fmt.Errorf("host %q: want a lower-case name, *.name or **.name", h))
		case name != h && !strings.Contains(name, "."):
			errs = append(errs, fmt.Errorf("host %q: a wildcard may not stand directly under a single label", h))
		}
	}
	return errors.Join(errs...)
}

// Judge judges one call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	raw, err := json.Marshal(q.Args)
	if err != nil {
		return guest.Deny("bad_argument", "the arguments cannot be read")
	}
	var args any
	if err := json.Unmarshal(raw, &args); err != nil {
		return guest.Deny("bad_argument", "the arguments cannot be read")
	}
	w := walker{s: s}
	w.value(args, "", 0)
	if w.code != "" {
		return guest.Deny(w.code, w.reason, guest.Why{Rule: w.code, At: w.at, Saw: w.saw})
	}
	narrowed, changed := narrow(q.Grants, s)
	if !changed {
		return guest.Allow()
	}
	return guest.Narrow(narrowed...)
}

// narrow replaces each http grant by one for each listed host; the host keeps
// what both allow.
func narrow(grants []string, s Settings) ([]string, bool) {
	out, changed := []string{}, false
	for _, line := range grants {
		methods, rest, ok := strings.Cut(strings.TrimPrefix(line, "http "), " ")
		if !ok || !strings.HasPrefix(line, "http ") {
			out = append(out, line)
			continue
		}
		changed = true
		private := ""
		if strings.HasPrefix(rest, "private ") {
			private = "private "
		}
		for _, h := range s.Hosts {
			for _, port := range s.ports() {
				for _, scheme := range s.schemes() {
					out = append(out, "http "+methods+" "+private+target(scheme, h, port))
				}
			}
		}
	}
	return out, changed
}

// target writes a scheme, host and port as grants do, with defaults left out.
func target(scheme, host string, port int) string {
	usual := map[string]int{"https": 443, "http": 80}[scheme]
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != usual {
		host = fmt.Sprintf("%s:%d", host, port)
	}
	if scheme != "https" {
		host = scheme + "://" + host
	}
	return host + "/*"
}

func (s Settings) schemes() []string {
	if len(s.Schemes) == 0 {
		return []string{"https"}
	}
	return s.Schemes
}

func (s Settings) ports() []int {
	if len(s.Ports) == 0 {
		return []int{443}
	}
	return s.Ports
}

// A walker looks at every text and every key of a document, in all its views,
// and stops at the first address that is not allowed.
type walker struct {
	s                     Settings
	code, reason, at, saw string
}

func (w *walker) value(v any, at string, depth int) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			here := at + "/" + strings.ReplaceAll(strings.ReplaceAll(k, "~", "~0"), "/", "~1")
			w.text(k, here, depth)
			w.value(v[k], here, depth)
		}
	case []any:
		for i, e := range v {
			w.value(e, fmt.Sprintf("%s/%d", at, i), depth)
		}
	case string:
		w.text(v, at, depth)
	}
}

const (
	maxNested  = 2 // JSON text inside text
	maxDecoded = 3 // rounds of percent-decoding
)

func (w *walker) text(s, at string, depth int) {
	if w.code != "" {
		return
	}
	if t := strings.TrimSpace(s); depth < maxNested && len(t) > 1 && strings.ContainsAny(t[:1], `{["`) {
		var inner any
		if json.Unmarshal([]byte(t), &inner) == nil {
			w.value(inner, at, depth+1)
		}
	}
	views := []string{s}
	for range maxDecoded + 1 {
		last := views[len(views)-1]
		next, err := url.PathUnescape(last)
		if err != nil || next == last {
			break
		}
		if len(views) > maxDecoded {
			w.deny("encoding", "an argument is encoded too often", at, s)
			return
		}
		views = append(views, next)
	}
	for _, v := range views {
		w.addresses(v, at)
	}
}

// addresses finds every absolute address in a text: what begins with a scheme
// and "//", or with "//" alone.
func (w *walker) addresses(s, at string) {
	flat := strings.Map(func(r rune) rune { // what URL parsers drop or fold
		switch r {
		case '\t', '\n', '\r':
			return -1
		}
		return r
	}, s)
	for from := 0; ; {
		i := strings.IndexAny(flat[from:], `/\`)
		if i < 0 || w.code != "" {
			return
		}
		i += from
		from = i + 1
		if i+1 >= len(flat) || flat[i+1] != '/' && flat[i+1] != '\\' {
			continue
		}
		start := i
		if i > 0 && flat[i-1] == ':' {
			for start = i - 1; start > 0 && isScheme(flat[start-1]); start-- {
			}
		} else if strings.TrimSpace(flat[:i]) != "" {
			continue // two slashes in the middle of a path
		}
		end := i + 2
		for end < len(flat) && !strings.ContainsRune(" \"'<>`)]}|", rune(flat[end])) {
			end++
		}
		w.address(flat[start:end], at)
		from = i + 2
	}
}

func isScheme(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.'
}

func (w *walker) address(text, at string) {
	if strings.HasPrefix(text, "//") || strings.HasPrefix(text, `\\`) {
		text = "https:" + text
	}
	if strings.Contains(text, `\`) {
		w.deny("url_form", "an address has a backslash", at, text)
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		w.deny("url_form", "an address cannot be read", at, text)
		return
	case u.User != nil:
		w.deny("url_form", "an address has a user name", at, text)
		return
	}
	if !slices.Contains(w.s.schemes(), strings.ToLower(u.Scheme)) {
		w.deny("scheme_not_listed", "that kind of address may not be used", at, text)
		return
	}
	port := map[string]string{"https": "443", "http": "80"}[strings.ToLower(u.Scheme)]
	if u.Port() != "" {
		port = u.Port()
	}
	if !slices.ContainsFunc(w.s.ports(), func(p int) bool { return fmt.Sprint(p) == port }) {
		w.deny("port_not_listed", "that port may not be used", at, u.Host)
		return
	}
	if !w.listed(strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")) {
		w.deny("host_not_listed", "that host is not on the list of allowed hosts", at, u.Hostname())
	}
}

func (w *walker) listed(host string) bool {
	for _, h := range w.s.Hosts {
		switch {
		case strings.HasPrefix(h, "**."):
			if strings.HasSuffix(host, h[2:]) && len(host) > len(h)-2 && !strings.HasPrefix(host, ".") {
				return true
			}
		case strings.HasPrefix(h, "*."):
			label, ok := strings.CutSuffix(host, h[1:])
			if ok && label != "" && !strings.Contains(label, ".") {
				return true
			}
		case host == h:
			return true
		}
	}
	return false
}

func (w *walker) deny(code, reason, at, saw string) {
	if w.code == "" {
		w.code, w.reason, w.at, w.saw = code, reason, at, saw[:min(len(saw), 200)]
	}
}
