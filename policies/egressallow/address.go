package egressallow

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/policies/views"
)

// An address is a stretch of text that some reader follows.
type address struct {
	text       string // with a scheme
	start, end int
}

// A finding says why an address is refused.
type finding struct{ code, reason, saw string }

// known returns the scheme of the web, of a socket or a file at the end of a text, as
// it is written there.
func known(text string) string {
	for _, scheme := range []string{"https", "http", "wss", "ws", "ftp", "file"} {
		if n := len(text) - len(scheme); n >= 0 && strings.EqualFold(text[n:], scheme) {
			return text[n:]
		}
	}
	return ""
}

// mail is the scheme of letters, which have a recipient in place of a host.
const mail = "mailto"

// breaks are what readers of addresses leave out.
var breaks = strings.NewReplacer("\t", "", "\n", "", "\r", "")

func flatten(s string) string { return strings.TrimSpace(breaks.Replace(s)) }

func startsWithAddress(s string) bool {
	colon := strings.IndexByte(s, ':')
	return colon > 0 && known(s[:colon]) == s[:colon]
}

// addresses finds what is an address in a text: what has a scheme, what begins with
// two slashes and, in texts for people, what begins with www. It looks around colons,
// slashes and dots, because an expression that is tried at every character costs a
// guest more than it has.
func addresses(s string, argument bool) []address {
	var out []address
	each(s, ':', func(i int) {
		if a, ok := withScheme(s, i); ok {
			out = append(out, a)
		}
	})
	for _, slash := range []byte(`/\`) {
		each(s, slash, func(i int) {
			if a, ok := withoutScheme(s, i); ok {
				out = append(out, a)
			}
		})
	}
	if argument {
		return out
	}
	each(s, '.', func(i int) {
		start := i - 3
		if start < 0 || !strings.EqualFold(s[start:i], "www") || !hostBegins(s[i+1:]) {
			return
		}
		if before, _ := utf8.DecodeLastRuneInString(s[:start]); letter(before) || strings.ContainsRune(".@/-:", before) {
			return // in the middle of a name, or found with its scheme
		}
		end := ends(s, i+1)
		out = append(out, address{text: "https://" + s[start:end], start: start, end: end})
	})
	return out
}

// each calls f with every place of a byte.
func each(s string, c byte, f func(i int)) {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], c)
		if i < 0 {
			return
		}
		f(from + i)
		from += i + 1
	}
}

func isSlash(s string, i int) bool { return i < len(s) && (s[i] == '/' || s[i] == '\\') }

func letter(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func hostBegins(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return r == '[' || letter(r) && r != utf8.RuneError
}

func isScheme(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.'
}

// withScheme returns the address whose scheme ends at a colon.
func withScheme(s string, colon int) (address, bool) {
	start := colon
	for start > 0 && isScheme(s[start-1]) {
		start--
	}
	scheme := s[start:colon]
	if n := len(scheme) - len(mail); n >= 0 && strings.EqualFold(scheme[n:], mail) {
		return mailTo(s, start+n, colon+1)
	}
	web := known(scheme)
	if near := s[max(0, colon-12):colon]; web == "" && strings.ContainsAny(near, "\t\r\n") {
		if broken := known(breaks.Replace(near)); strings.HasPrefix(strings.ToLower(broken), "http") && isSlash(breaks.Replace(s[colon+1:min(len(s), colon+4)]), 0) {
			end := ends(s, colon+1)
			return address{text: near + s[colon:end], start: colon - len(near), end: end}, true // which is no form for an address
		}
	}
	if web != "" {
		start, scheme = colon-len(web), web // what stands before a scheme without a blank is none
	}
	from := colon + 1
	switch {
	case scheme == "":
		return address{}, false
	case isSlash(s, from) && isSlash(s, from+1):
		from += 2
	case web == "" || strings.EqualFold(web, "file"):
		return address{}, false
	default:
		if isSlash(s, from) {
			from++
		}
		if !hostBegins(s[from:]) {
			return address{}, false
		}
	}
	a := address{start: start, end: ends(s, from)}
	a.text = s[start:a.end]
	if strings.HasPrefix(a.text[len(scheme):], `:\/\/`) { // as JSON may write it
		a.text = strings.ReplaceAll(a.text, `\/`, "/")
	}
	if rest := strings.TrimLeft(a.text[len(scheme)+1:], "/"); web != "" && !strings.EqualFold(web, "file") && !strings.HasPrefix(rest, `\`) {
		a.text = scheme + "://" + rest // as browsers read it
	}
	return a, true
}

// mailTo returns the address that begins at start and has its scheme in front of from. It
// reaches to the host of the last one that is named before a blank, or in quotes and angle
// brackets before their end.
func mailTo(s string, start, from int) (address, bool) {
	blanks := " \t\r\n<>"
	if start > 0 && strings.IndexByte("\"'<", s[start-1]) >= 0 {
		blanks = "\r\n<>"
	}
	rest := s[from:]
	if end := strings.IndexAny(rest, blanks); end >= 0 {
		rest = rest[:end]
	}
	at := max(strings.LastIndex(rest, "@"), strings.LastIndex(rest, "%40"))
	if at < 0 {
		return address{}, false // to nobody
	}
	end := ends(s, from+at+1)
	return address{text: s[start:end], start: start, end: end}, true
}

// withoutScheme returns the address that begins with two slashes at i.
func withoutScheme(s string, i int) (address, bool) {
	from := min(len(s), i+2)
	plain := strings.HasPrefix(s[i:], "//")
	for plain && from < len(s) && s[from] == '/' { // browsers take any number
		from++
	}
	if !isSlash(s, i+1) || !hostBegins(s[from:]) {
		return address{}, false
	}
	if before, _ := utf8.DecodeLastRuneInString(s[:i]); before != utf8.RuneError && !strings.ContainsRune(" \t\r\n(\"'<=>[`|", before) {
		return address{}, false // in the middle of a path, or behind a scheme
	}
	a := address{start: i, end: ends(s, from)}
	host, _, _ := strings.Cut(s[from:a.end], "/")
	goesOn := plain && strings.ContainsAny(s[from:a.end], "/?")
	if _, err := strconv.ParseUint(host, 0, 64); err != nil && !goesOn && !strings.ContainsAny(host, ".[") {
		return address{}, false // a comment of one word
	}
	a.text = "https:" + s[i:i+2] + s[from:a.end]
	return a, true
}

// ends returns where an address that has reached i ends.
func ends(s string, i int) int {
	if n := strings.IndexAny(s[i:], " \t\r\n\"'<>`)]}|"); n >= 0 {
		// A bracket that was opened behind the slashes belongs to the host.
		if s[i+n] == ']' && strings.Contains(s[i-1:i+n], "[") {
			return ends(s, i+n+1)
		}
		return i + n
	}
	return len(s)
}

// check says what is wrong with an address, nil if it is allowed.
func (s Settings) check(text string) *finding {
	saw := text[:min(len(text), 200)]
	if len(text) > len(mail) && strings.EqualFold(text[:len(mail)+1], mail+":") {
		return s.checkMail(text[len(mail)+1:], saw)
	}
	if strings.ContainsAny(text, "\\\t\r\n") {
		return &finding{"url_form", "an address has a backslash or a line break", saw}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return &finding{"url_form", "an address cannot be read", saw}
	case u.User != nil:
		return &finding{"url_form", "an address has a user name", saw}
	}
	scheme := strings.ToLower(u.Scheme)
	if !slices.Contains(s.schemes(), scheme) {
		return &finding{"scheme_not_listed", "that kind of address may not be used", saw}
	}
	port := map[string]string{"https": "443", "http": "80"}[scheme]
	if u.Port() != "" {
		port = u.Port()
	}
	if !slices.ContainsFunc(s.ports(), func(p int) bool { return strconv.Itoa(p) == port }) {
		return &finding{"port_not_listed", "that port may not be used", u.Host}
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if !s.listed(host) {
		return &finding{"host_not_listed", "that host is not on the list of allowed hosts", u.Hostname()}
	}
	return nil
}

// checkMail says what is wrong with what follows mailto:, nil if whoever is named in it,
// as recipient or in its text, is at a listed host. Schemes and ports do not count.
func (s Settings) checkMail(text, saw string) *finding {
	plain, _ := views.View{Text: text}.Percent()
	for _, part := range strings.Split(plain.Text, "@")[1:] {
		host := part
		if end := strings.IndexFunc(part, func(r rune) bool { return !letter(r) && r != '-' && r != '.' }); end >= 0 {
			host = part[:end]
		}
		if !s.listed(strings.TrimSuffix(strings.ToLower(host), ".")) {
			return &finding{"host_not_listed", "that host is not on the list of allowed hosts", saw}
		}
	}
	return nil
}
