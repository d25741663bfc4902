package capability

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	tests := []struct {
		name        string
		lines, want []string
	}{
		{"none", nil, []string{}},
		{"sorted", []string{"log", "clock"}, []string{"clock", "log"}},
		{"twice", []string{"log", " log"}, []string{"log"}},
		{"verbs joined", []string{"state write session:x", "state read session:x"}, []string{"state read,write session:x"}},
		{"covered host", []string{"http GET a.example.com", "http GET **.example.com", "http GET *.example.com"}, []string{"http GET **.example.com/*"}},
		{"covered path", []string{"http GET a.example/v1/x", "http GET a.example/v1/*"}, []string{"http GET a.example/v1/*"}},
		{"covered verb by verb", []string{"http GET a.example", "http POST a.example", "http GET,POST a.example/x"}, []string{"http GET,POST a.example/*"}},
		{"one verb covered", []string{"http GET **", "http GET,POST a.example"}, []string{"http GET **/*", "http POST a.example/*"}},
		{"private covers", []string{"http GET a.example", "http GET private a.example"}, []string{"http GET private a.example/*"}},
		{"private does not lose", []string{"http GET **", "http GET private a.example"}, []string{"http GET **/*", "http GET private a.example/*"}},
		{"ports differ", []string{"http GET a.example", "http GET a.example:8443"}, []string{"http GET a.example/*", "http GET a.example:8443/*"}},
		{"covered key", []string{"state read session:cart.x", "state read session:cart.*", "state read user:cart.x"}, []string{"state read session:cart.*", "state read user:cart.x"}},
		{"covered secret", []string{"secret use * at **.b.example", "secret use A at x.b.example"}, []string{"secret use * at **.b.example"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mustSet(t, tt.lines...).Lines(); got == nil || !slices.Equal(got, tt.want) {
				t.Errorf("Lines of %q = %q, want %q", tt.lines, got, tt.want)
			}
		})
	}
}

func TestIntersect(t *testing.T) {
	tests := []struct {
		name       string
		a, b, want []string
	}{
		{"nothing", []string{"log"}, nil, []string{}},
		{"other kind", []string{"log"}, []string{"clock"}, []string{}},
		{"same", []string{"log"}, []string{"log"}, []string{"log"}},
		{"methods", []string{"http GET,POST a.example"}, []string{"http POST,PUT a.example"}, []string{"http POST a.example/*"}},
		{"no method", []string{"http GET a.example"}, []string{"http POST a.example"}, []string{}},
		{"read-only", []string{"http GET,POST a.example/v1/*", "state read,write session:*"}, []string{"http GET,HEAD **", "state read session:*"}, []string{"http GET a.example/v1/*", "state read session:*"}},
		{"one label in many", []string{"http GET *.b.example"}, []string{"http GET **.example.b", "http GET **.b.example"}, []string{"http GET *.b.example/*"}},
		{"many in many", []string{"http GET **.b.example"}, []string{"http GET **.a.b.example"}, []string{"http GET **.a.b.example/*"}},
		{"one and fewer", []string{"http GET *.b.example"}, []string{"http GET **.a.b.example"}, []string{}},
		{"labels cross", []string{"http GET a.*.c.example"}, []string{"http GET *.b.c.example"}, []string{"http GET a.b.c.example/*"}},
		{"many and inner", []string{"http GET **.b.c.example"}, []string{"http GET a.*.c.example"}, []string{"http GET a.b.c.example/*"}},
		{"paths cross", []string{"http GET a.example/*/x/*"}, []string{"http GET a.example/y/*"}, []string{"http GET a.example/y/x/*"}},
		{"path above", []string{"http GET a.example/v1/*"}, []string{"http GET a.example/v1"}, []string{}},
		{"path just below", []string{"http GET a.example/v1/*"}, []string{"http GET a.example/v1/"}, []string{"http GET a.example/v1/"}},
		{"star segment is not empty", []string{"http GET a.example/v1/*/*"}, []string{"http GET a.example/v1/"}, []string{}},
		{"private", []string{"http GET private a.example"}, []string{"http GET **"}, []string{"http GET a.example/*"}},
		{"private on both sides", []string{"http GET private a.example"}, []string{"http GET private **"}, []string{"http GET private a.example/*"}},
		{"localhost", []string{"http GET private localhost"}, []string{"http GET **"}, []string{}},
		{"address", []string{"http GET 93.184.216.34"}, []string{"http GET **"}, []string{}},
		{"address on both sides", []string{"http GET 93.184.216.34"}, []string{"http GET,PUT 93.184.216.34/x"}, []string{"http GET 93.184.216.34/x"}},
		{"scheme", []string{"http GET a.example"}, []string{"http GET http://a.example:443"}, []string{}},
		{"metadata between two wildcards", []string{"http GET api.*.cloud.ibm.com"}, []string{"http GET *.metadata.cloud.ibm.com"}, []string{}},
		{"ends", []string{"artifact read logs/*"}, []string{"artifact read *.csv"}, []string{"artifact read logs/*.csv"}},
		{"ends that overlap", []string{"artifact read ab*"}, []string{"artifact read *bc"}, []string{"artifact read ab*bc", "artifact read abc"}},
		{"one end", []string{"state read session:cart.*"}, []string{"state read session:*"}, []string{"state read session:cart.*"}},
		{"other scope", []string{"state read session:*"}, []string{"state read app:*"}, []string{}},
		{"artifacts of the user", []string{"artifact read *"}, []string{"artifact read user:*"}, []string{}},
		{"overlap that is no name", []string{"artifact read .*"}, []string{"artifact read *."}, []string{"artifact read .*."}},
		{"folder and ending", []string{"artifact read a/*"}, []string{"artifact read */b"}, []string{"artifact read a/*/b", "artifact read a/b"}},
		{"secrets", []string{"secret use BANK_TOKEN at pay.bank.example"}, []string{"secret use * at **.bank.example"}, []string{"secret use BANK_TOKEN at pay.bank.example"}},
		{"kv", []string{"kv read,write"}, []string{"kv read"}, []string{"kv read"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := mustSet(t, tt.a...), mustSet(t, tt.b...)
			for _, got := range []Set{a.Intersect(b), b.Intersect(a)} {
				if !slices.Equal(got.Lines(), tt.want) {
					t.Errorf("%q with %q = %q, want %q", tt.a, tt.b, got.Lines(), tt.want)
				}
				if got.Empty() != (len(tt.want) == 0) {
					t.Errorf("Empty() = %v of %q", got.Empty(), got.Lines())
				}
			}
		})
	}
}

func TestCovers(t *testing.T) {
	s := mustSet(t, "http GET **.example.com/v1/*", "http POST a.example.com", "state read session:*", "state write session:x", "log")
	for line, want := range map[string]bool{
		"http GET a.example.com/v1/*":           true,
		"http GET,POST a.example.com/v1/x":      true,
		"http GET,POST b.example.com/v1/x":      false,
		"http GET a.example.com":                false,
		"http GET example.com/v1/x":             false,
		"http GET private a.b.example.com/v1/x": false,
		"http GET http://a.example.com/v1/x":    false,
		"state read,write session:x":            true,
		"state read,write session:y":            false,
		"state read session:a*b":                true,
		"state read app:x":                      false,
		"log":                                   true,
		"clock":                                 false,
	} {
		if got := s.Covers(mustParse(t, line)); got != want {
			t.Errorf("Covers(%q) = %v, want %v", line, got, want)
		}
	}
}

func TestEffective(t *testing.T) {
	request := mustSet(t, "http GET,POST api.x.example/*", "state read,write session:*", "transfer")
	ceiling := mustSet(t, "http GET,POST **.x.example", "state read,write session:*", "log")
	binding := mustSet(t, "http GET,POST api.x.example/v1/*", "state read,write session:*", "transfer")
	narrow := mustSet(t, "http GET **", "state read session:*")
	got := Effective(request, ceiling, binding, narrow).Lines()
	if want := []string{"http GET api.x.example/v1/*", "state read session:*"}; !slices.Equal(got, want) {
		t.Errorf("Effective = %q, want %q", got, want)
	}
	full := []Set{request, ceiling, binding, narrow}
	for i := range full {
		args := slices.Clone(full)
		args[i] = Set{}
		if got := Effective(args[0], args[1], args[2], args[3]); !got.Empty() {
			t.Errorf("Effective with nothing as argument %d = %q", i, got.Lines())
		}
	}
	if got := Effective(request, ceiling, binding).Lines(); !slices.Contains(got, "http GET,POST api.x.example/v1/*") {
		t.Errorf("Effective without a narrowing = %q", got)
	}
}

func TestParseSetErrors(t *testing.T) {
	s, err := ParseSet([]string{"log", "http GET *.com", "nonsense"})
	if !s.Empty() || !errors.Is(err, ErrSyntax) {
		t.Fatalf("ParseSet = %q, %v", s.Lines(), err)
	}
	for _, line := range []string{"*.com", "nonsense"} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("error %q does not name %q", err, line)
		}
	}
	if _, err := ParseSet(slices.Repeat([]string{"log"}, MaxLines+1)); !errors.Is(err, ErrSyntax) {
		t.Errorf("%d lines: %v", MaxLines+1, err)
	}
}

func TestSetIsImmutable(t *testing.T) {
	s := mustSet(t, "clock", "log")
	s.Lines()[0] = "transfer"
	s.Capabilities()[0] = mustParse(t, "transfer")
	if got := s.Lines(); !slices.Equal(got, []string{"clock", "log"}) {
		t.Errorf("Lines = %q after its results were changed", got)
	}
}

// The laws of sets, on random sets whose patterns overlap often.
func TestLaws(t *testing.T) {
	for seed := range uint64(800) {
		g := generator{rand.New(rand.NewPCG(seed, 5))}
		if err := checkLaws(g, g.set(14), g.set(14), g.set(8)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// checkLaws reports the first law that a, b and c break.
func checkLaws(g generator, a, b, c Set) error {
	both := a.Intersect(b)
	if x, y := both.Lines(), b.Intersect(a).Lines(); !slices.Equal(x, y) {
		return fmt.Errorf("not commutative: %q with %q: %q, %q", a.Lines(), b.Lines(), x, y)
	}
	if x := a.Intersect(a).Lines(); !slices.Equal(x, a.Lines()) {
		return fmt.Errorf("not idempotent: %q: %q", a.Lines(), x)
	}
	if x, y := both.Intersect(c).Lines(), a.Intersect(b.Intersect(c)).Lines(); !slices.Equal(x, y) {
		return fmt.Errorf("not associative: %q, %q, %q: %q, %q", a.Lines(), b.Lines(), c.Lines(), x, y)
	}
	if x := both.Intersect(a).Lines(); !slices.Equal(x, both.Lines()) {
		return fmt.Errorf("wider than an operand: %q with %q: %q", a.Lines(), b.Lines(), both.Lines())
	}
	if x := a.Intersect(Set{}); !x.Empty() {
		return fmt.Errorf("more than nothing: %q: %q", a.Lines(), x.Lines())
	}
	for _, line := range both.Capabilities() {
		if again, err := Parse(line.String()); err != nil || again != line {
			return fmt.Errorf("%q does not parse as itself: %q, %v", line, again, err)
		}
		if !both.Covers(line) || !a.Covers(line) || !b.Covers(line) {
			return fmt.Errorf("%q of %q with %q is not covered", line, a.Lines(), b.Lines())
		}
	}
	for _, line := range a.Capabilities() {
		x, _ := ParseSet([]string{line.String()})
		if b.Covers(line) != slices.Equal(x.Intersect(b).Lines(), x.Lines()) {
			return fmt.Errorf("Covers(%q) of %q disagrees with the intersection", line, b.Lines())
		}
	}
	again, err := ParseSet(both.Lines())
	if err != nil || !slices.Equal(again.Lines(), both.Lines()) {
		return fmt.Errorf("%q parses as %q, %v", both.Lines(), again.Lines(), err)
	}
	for range 60 {
		q := g.question(a, b, both)
		if x, y, z := q.ask(a), q.ask(b), q.ask(both); z != (x && y) {
			return fmt.Errorf("%s: %q says %v, %q says %v, intersection %q says %v", q.text, a.Lines(), x, b.Lines(), y, both.Lines(), z)
		}
	}
	return nil
}

// A generator makes lines and questions out of few words, so that they meet.
type generator struct{ *rand.Rand }

type question struct {
	text string
	ask  func(Set) bool
}

func (g generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g generator) some(sep string, most int, words ...string) string {
	out := make([]string, 1+g.IntN(most))
	for i := range out {
		out[i] = g.pick(words...)
	}
	return strings.Join(out, sep)
}

func (g generator) set(most int) Set {
	var lines []string
	for n := g.IntN(most + 1); len(lines) < n; {
		if line := g.line(); line != "" {
			lines = append(lines, line)
		}
	}
	s, err := ParseSet(lines)
	if err != nil {
		panic(err) // line only returns what parses
	}
	return s
}

// line returns a line that parses, or nothing.
func (g generator) line() string {
	name := func() string {
		return strings.Replace(g.some("", 4, "a", "b", "ab", "/", ".", "é"), g.pick("a", "b", "/"), "*", g.IntN(2))
	}
	host := g.pick("**", "**.", "*.", "", "", "") + g.some(".", 4, "a", "b", "a", "b", "*", "localhost")
	var line string
	switch g.IntN(9) {
	case 0, 1, 2, 3:
		line = "http " + g.pick("GET", "POST", "GET,POST", "GET,PUT") + g.pick("", "", " private") + " " + g.pick("", "", "http://") +
			g.pick(host, host, host, "**", "1.2.3.4", "10.0.0.1") + g.pick("", "", ":81") +
			g.pick("", "/", "/"+g.some("/", 4, "a", "b", "*", ""))
	case 4, 5:
		line = "state " + g.pick("read", "write", "read,write") + " " + g.pick("session:", "session:", "app:") + name()
	case 6:
		line = "artifact " + g.pick("read", "write", "read,write") + " " + g.pick("", "", "user:") + name()
	case 7:
		line = "secret use " + g.pick("A", "B", "A*", "*B", "*", "AB") + " at " + g.pick(host, "1.2.3.4")
	default:
		line = g.pick("log", "clock", "kv read", "kv write", "kv read,write", "memory search")
	}
	if _, err := Parse(line); err != nil {
		return ""
	}
	return line
}

// question returns a question that is at random, or that some line of the sets
// allows, or nearly so.
func (g generator) question(sets ...Set) question {
	host := g.pick(g.some(".", 4, "a", "b", "a", "b", "localhost", "c"), "1.2.3.4", "10.0.0.1")
	name := g.some("", 4, "a", "b", "ab", "/", ".", "é", "")
	scheme, port := g.pick("https", "https", "http"), g.pick("", "", ":81")
	path := "/" + g.some("/", 4, "a", "b", "c", "")
	scope, secret := g.pick("session:", "app:"), g.pick("A", "B", "AB", "ABB")
	kind := g.pick(kindHTTP, kindHTTP, kindState, kindArtifact, kindSecret, "kv", "log", "clock", "memory")
	if kind == kindArtifact {
		scope = g.pick("", "user:")
	}
	key := scope + name
	if lines := sets[g.IntN(len(sets))].lines; len(lines) > 0 && g.IntN(4) > 0 {
		c := lines[g.IntN(len(lines))]
		fill := func(pattern, with string) string { return strings.ReplaceAll(pattern, "*", with) }
		kind, scheme, port = c.kind, c.scheme, strings.TrimPrefix(target(c.scheme, "", c.port), c.scheme+"://")
		host = fill(strings.Replace(c.host, "**", g.some(".", 3, "a", "b"), 1), g.pick("a", "b"))
		if c.path != "" {
			open := strings.HasSuffix(c.path, "*")
			path = fill(strings.TrimSuffix(c.path, "*"), g.pick("a", "b", ""))
			if open {
				path += g.some("/", 3, "a", "b", "")
			}
		}
		key = fill(c.name, g.some("", 3, "a", "b", "/", ""))
		secret = key
	}
	switch kind {
	case kindHTTP:
		u := &url.URL{Scheme: scheme, Host: host + port, Path: path}
		method := g.pick("GET", "POST", "PUT")
		if g.IntN(3) == 0 {
			return question{"private " + method + " " + u.String(), func(s Set) bool { return s.HTTPPrivate(method, u) }}
		}
		return question{method + " " + u.String(), func(s Set) bool { return s.HTTP(method, u) }}
	case kindState:
		if g.IntN(2) == 0 {
			return question{"read " + key, func(s Set) bool { return s.StateRead(key) }}
		}
		return question{"write " + key, func(s Set) bool { return s.StateWrite(key) }}
	case kindArtifact:
		if g.IntN(2) == 0 {
			return question{"read artifact " + key, func(s Set) bool { return s.ArtifactRead(key) }}
		}
		return question{"write artifact " + key, func(s Set) bool { return s.ArtifactWrite(key) }}
	case kindSecret:
		return question{secret + " at " + host, func(s Set) bool { return s.Secret(secret, host) }}
	case kindKV:
		return question{"kv write", Set.KVWrite}
	}
	return question{kind, func(s Set) bool { return s.Has(kind) }}
}

// The questions must be answered with yes often enough to mean something.
func TestLawsAsk(t *testing.T) {
	yes := 0
	for seed := range uint64(300) {
		g := generator{rand.New(rand.NewPCG(seed, 5))}
		a, b := g.set(14), g.set(14)
		both := a.Intersect(b)
		for range 60 {
			if g.question(a, b, both).ask(both) {
				yes++
			}
		}
	}
	if yes < 1500 {
		t.Errorf("%d of %d random questions are allowed by an intersection", yes, 300*60)
	}
	t.Logf("%d of %d allowed", yes, 300*60)
}

func BenchmarkHTTP(b *testing.B) {
	s := mustSet(b, "http GET,POST **.bank.example", "http GET api.weather.example/v1/*", "log", "state read session:*")
	u, _ := url.Parse("https://api.weather.example/v1/daily?days=3")
	for b.Loop() {
		if !s.HTTP("GET", u) {
			b.Fatal("denied")
		}
	}
}

// crossing returns two sets of n lines of which each overlaps in part with each
// line of the other.
func crossing(t testing.TB, n int, methods string) (Set, Set) {
	var one, two []string
	for i := range n {
		one = append(one, fmt.Sprintf("http %s a.example/a%d/*/*", methods, i))
		two = append(two, fmt.Sprintf("http %s a.example/*/b%d/*", methods, i))
	}
	return mustSet(t, one...), mustSet(t, two...)
}

func TestIntersectIsBounded(t *testing.T) {
	a, b := crossing(t, 45, "GET") // 2025 lines
	if n := len(a.Intersect(b).Lines()); n != 45*45 {
		t.Errorf("%d lines, want %d", n, 45*45)
	}
	a, b = crossing(t, 46, "GET") // 2116 lines
	if got := a.Intersect(b); !got.Empty() {
		t.Errorf("%d lines, want none", len(got.Lines()))
	}
	full, _ := crossing(t, MaxLines, "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS")
	if n := len(full.Lines()); n != MaxLines {
		t.Errorf("a parsed set has %d lines, want %d", n, MaxLines)
	}
}

// The worst that two sets do to each other.
func BenchmarkIntersectHostile(b *testing.B) {
	x, y := crossing(b, 45, "GET")
	for b.Loop() {
		x.Intersect(y)
	}
}

// The worst that [ParseSet] is given.
func BenchmarkParseSetHostile(b *testing.B) {
	var lines []string
	for i := range MaxLines {
		lines = append(lines, fmt.Sprintf("http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS **.b%d.example.com%s/a%d", i, strings.Repeat("/*", 30), i))
	}
	for b.Loop() {
		mustSet(b, lines...)
	}
}

func BenchmarkEffective(b *testing.B) {
	request := mustSet(b, "http GET,POST api.x.example/*", "state read,write session:*", "log")
	ceiling := mustSet(b, "http GET,POST **.x.example", "state read,write session:*", "log", "artifact read *")
	for b.Loop() {
		Effective(request, ceiling, request)
	}
}
