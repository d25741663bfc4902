// Package egressallow is the first-party guard that keeps web addresses to a
// list. It judges calls: every address in the arguments must be on the list, and
// every http grant of the call is narrowed to it. It judges what a model says:
// every link in it must be on the list, because a link or image carries data out
// as soon as somebody's screen shows it. It is the second lock: the host's own
// dialler checks every connection whether or not this guard is there.
package egressallow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say which addresses are allowed. An empty list allows nothing.
type Settings struct {
	// Hosts are exact names, "*.name" for one more label, "**.name" for one or
	// more. An IP address is allowed only by its own, canonical text.
	Hosts   []string `json:"hosts" doc:"allowed hosts: exact, *.name for one label, **.name for any depth" max:"256"`
	Schemes []string `json:"schemes,omitempty" doc:"allowed schemes; default https"`
	Ports   []int    `json:"ports,omitempty" doc:"allowed ports; default 443"`
	Links   string   `json:"links,omitempty" doc:"deny: a response with a link that is not allowed is refused; allow: links in responses are not looked at" enum:"deny,allow" default:"deny"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "egress-allow", Phases: []guest.Phase{guest.PhaseCall, guest.PhaseResponse}, Check: Check, Judge: Judge}
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

// Judge judges one call or response.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if q.Phase == guest.PhaseResponse {
		return judgeResponse(q, s)
	}
	var bad *finding
	at, err := views.Each(views.Tree(q.Args), func(l views.Leaf, v views.View) bool {
		found := addresses(v.Text, true)
		if m, ok := v.Markdown(); ok {
			found = append(found, addresses(m.Text, true)...)
		}
		if flat := flatten(v.Text); flat != v.Text && startsWithAddress(flat) {
			found = append(found, addresses(flat, true)...)
		}
		for _, a := range found {
			if bad = s.check(a.text); bad != nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		return guest.Deny("encoding", "an argument is encoded too often", guest.Why{Rule: "encoding", At: at})
	}
	if bad != nil {
		return guest.Deny(bad.code, bad.reason, guest.Why{Rule: bad.code, At: at, Saw: bad.saw})
	}
	narrowed, changed := narrow(q.Grants, s)
	if !changed {
		return guest.Allow()
	}
	return guest.Narrow(narrowed...)
}

// maxHeld is the longest address at the end of a stream that may still grow.
const maxHeld = 4096

func judgeResponse(q *guest.Question, s Settings) guest.Verdict {
	if s.Links == "allow" {
		return guest.Allow()
	}
	text := q.Response.Text()
	hold := 0
	var bad *finding
	look := func(v views.View) bool {
		for _, a := range addresses(v.Text, false) {
			if q.Response.Partial && a.end == len(v.Text) { // it may go on
				from, _ := v.Span(a.start, a.end)
				hold = max(hold, utf8.RuneCountInString(text[from:]))
				continue
			}
			if bad = s.check(a.text); bad != nil {
				return false
			}
		}
		return true
	}
	_, err := views.Texts(text, func(v views.View) bool {
		if !look(v) {
			return false
		}
		m, ok := v.Markdown()
		return !ok || look(m)
	})
	switch {
	case err != nil:
		return guest.Deny("encoding", "the text is encoded too often")
	case bad != nil && bad.code == "host_not_listed":
		return guest.Deny("link_not_listed", "the text has a link to a host that is not on the list of allowed hosts", guest.Why{Rule: "link_not_listed", Saw: bad.saw})
	case bad != nil:
		return guest.Deny(bad.code, bad.reason, guest.Why{Rule: bad.code, Saw: bad.saw})
	case hold > maxHeld:
		return guest.Deny("url_form", "the text has an address that does not end", guest.Why{Rule: "url_form"})
	}
	return guest.AllowBut(hold)
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
			if addr, err := netip.ParseAddr(h); err == nil && private == "" && (!addr.IsGlobalUnicast() || addr.IsPrivate()) {
				continue // only a private grant covers it
			}
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

func (s Settings) listed(host string) bool {
	return slices.ContainsFunc(s.Hosts, func(pattern string) bool { return Matches(pattern, host) })
}

// Matches reports whether a pattern of Settings.Hosts allows a lower-case host.
func Matches(pattern, host string) bool {
	switch {
	case strings.HasPrefix(pattern, "**."):
		return strings.HasSuffix(host, pattern[2:]) && len(host) > len(pattern)-2 && !strings.HasPrefix(host, ".")
	case strings.HasPrefix(pattern, "*."):
		label, ok := strings.CutSuffix(host, pattern[1:])
		return ok && label != "" && !strings.Contains(label, ".")
	}
	return host == pattern
}
