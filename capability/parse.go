package capability

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxLine is the longest line [Parse] reads, in bytes.
const MaxLine = 16 << 10

// ErrSyntax matches every error of [Parse] and [ParseSet].
var ErrSyntax = errors.New("capability syntax")

// A SyntaxError reports a line that is no capability. Its message is
// `capability "LINE": WHAT`.
type SyntaxError struct {
	Line string // as given
	What string // what is wrong
	Hint string // what to write instead; may be empty
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("capability %q: %s", clip(e.Line, 200), e.What)
}

// Is makes every SyntaxError match [ErrSyntax].
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// wrong makes a SyntaxError whose Line is still to be filled in.
func wrong(hint, format string, args ...any) *SyntaxError {
	return &SyntaxError{What: fmt.Sprintf(format, args...), Hint: hint}
}

// Parse reads one line; the package comment gives the grammar. The error is a
// [*SyntaxError].
func Parse(line string) (Capability, error) {
	c, err := parse(line)
	if err != nil {
		err.Line = line
		return Capability{}, err
	}
	return c, nil
}

func parse(line string) (Capability, *SyntaxError) {
	if len(line) > MaxLine {
		return Capability{}, wrong("", "%d bytes exceed %d", len(line), MaxLine)
	}
	kind, rest := field(line)
	all, ok := verbsOf(kind)
	if !ok {
		var names []string
		for _, k := range kinds {
			names = append(names, k.name)
		}
		if kind == "" {
			return Capability{}, wrong("kinds are "+strings.Join(names, ", "), "empty")
		}
		return Capability{}, wrong("kinds are "+strings.Join(names, ", "), "kind %q is unknown", clip(kind, 60))
	}
	c := Capability{kind: kind}
	if all != nil {
		var list string
		list, rest = field(rest)
		var err *SyntaxError
		if c.verbs, err = parseVerbs(kind, all, list); err != nil {
			return Capability{}, err
		}
	}
	var err *SyntaxError
	switch kind {
	case kindHTTP:
		err = c.parseHTTP(rest)
	case kindState:
		c.name, err = parseState(rest)
	case kindArtifact:
		c.name, err = parseArtifact(rest)
	case kindSecret:
		err = c.parseSecret(rest)
	default:
		if rest != "" {
			err = wrong("", "%q stands after a complete line", clip(rest, 60))
		}
	}
	return c, err
}

// field cuts the first field off and the blanks around it and the rest.
func field(s string) (first, rest string) {
	s = strings.Trim(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], strings.TrimLeft(s[i:], " \t")
	}
	return s, ""
}

func parseVerbs(kind string, all []string, list string) (verbs, *SyntaxError) {
	if list == "" {
		return 0, wrong("", "%s needs %s", kind, strings.Join(all, ","))
	}
	var vs verbs
	for verb := range strings.SplitSeq(list, ",") {
		if !slices.Contains(all, verb) {
			hint := kind + " has " + strings.Join(all, ", ")
			if kind == kindHTTP && slices.Contains(all, strings.ToUpper(verb)) {
				hint = "write " + strings.ToUpper(verb)
			}
			return 0, wrong(hint, "%s has no verb %q", kind, clip(verb, 60))
		}
		bit := verbBit(kind, verb)
		if vs&bit != 0 {
			return 0, wrong("", "%s is written twice", verb)
		}
		vs |= bit
	}
	return vs, nil
}

func (c *Capability) parseHTTP(rest string) *SyntaxError {
	where, more := field(rest)
	if where == "private" { // a host of that name is written with its path
		c.private = true
		where, more = field(more)
	}
	if where == "" {
		return wrong("", "http needs a host")
	}
	if more != "" {
		return wrong("a blank in a path is written %20", "%q stands after the host and path", clip(more, 60))
	}
	if i := strings.IndexAny(where, `?#\`); i >= 0 {
		return wrong("leave it out: only scheme, host, port and path are compared", "%q cannot be part of a pattern", where[i:i+1])
	}
	c.scheme = "https"
	if scheme, after, ok := strings.Cut(where, "://"); ok {
		if scheme != "http" && scheme != "https" {
			return wrong("schemes are http and https", "scheme %q cannot be granted", clip(scheme, 60))
		}
		c.scheme, where = scheme, after
	}
	where, path := where[:pathStart(where)], where[pathStart(where):]
	if strings.Contains(where, "@") {
		return wrong("use a secret", "a user name cannot be part of a pattern")
	}
	host, port, err := cutPort(where)
	if err != nil {
		return err
	}
	c.port = defaultPort(c.scheme)
	if port != "" {
		n, numErr := strconv.ParseUint(port, 10, 16)
		if numErr != nil || n == 0 || port[0] == '0' {
			return wrong("", "port %q: want 1 to 65535", clip(port, 60))
		}
		c.port = uint16(n)
	}
	if c.host, err = parseHost(host); err != nil {
		return err
	}
	if needsPrivate(c.host) && !c.private {
		return wrong("write private before the host", "%s is a private address", bracket(c.host))
	}
	c.path, err = parsePath(path)
	return err
}

// pathStart returns the index at which the path begins.
func pathStart(s string) int {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return i
	}
	return len(s)
}

// cutPort separates HOST:PORT, where an IPv6 host is in brackets, which it
// keeps.
func cutPort(s string) (host, port string, err *SyntaxError) {
	if end := strings.IndexByte(s, ']'); strings.HasPrefix(s, "[") && end > 0 {
		host, s = s[:end+1], s[end+1:]
		if s == "" {
			return host, "", nil
		}
		if s[0] != ':' || len(s) == 1 {
			return "", "", wrong("", "%q stands after the address", clip(s, 60))
		}
		return host, s[1:], nil
	}
	host, port, found := strings.Cut(s, ":")
	if strings.Contains(port, ":") {
		return "", "", wrong("an IPv6 address is written in brackets", "host %q has more than one colon", clip(s, 60))
	}
	if found && port == "" {
		return "", "", wrong("", "no port stands after the colon")
	}
	return host, port, nil
}

func (c *Capability) parseSecret(rest string) *SyntaxError {
	const want = "secret use NAME at HOST"
	name, rest := field(rest)
	at, rest := field(rest)
	host, more := field(rest)
	if name == "" || at != "at" || host == "" || more != "" {
		return wrong(want, "want %s", want)
	}
	if what := checkSecret(name); what != "" {
		return wrong("", "secret %q: %s", clip(name, 60), what)
	}
	c.name = name
	if strings.ContainsAny(host, "/@?#") {
		return wrong(want, "a secret is bound to a host alone")
	}
	var err *SyntaxError
	c.host, err = parseHost(host)
	return err
}

// clip shortens text from outside for a message.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
