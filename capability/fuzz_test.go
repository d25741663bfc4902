package capability

import (
	"math/rand/v2"
	"net/netip"
	"net/url"
	"testing"
)

// What parses prints as something that parses as the same, covers itself, and
// never grants a metadata service.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"http GET,POST private http://*.a.example:81/v1/*", "http GET **", "http GET [2606:4700::1111]:8443/%2a/é", "state read,write session:cart.*",
		"artifact read user:*.csv", "secret use A_* at **.b.example", "kv read", "skip-summary", "http GET *.com", "http GET 0x7f.1",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := Parse(line)
		if err != nil {
			if err.Error() == "" || c != (Capability{}) {
				t.Errorf("Parse(%q) = %q, %v", line, c, err)
			}
			return
		}
		text := c.String()
		if again, err := Parse(text); err != nil || again != c {
			t.Fatalf("Parse(%q) prints %q, which parses as %q, %v", line, text, again, err)
		}
		if c.Words() == "" {
			t.Errorf("%q has no words", text)
		}
		s := newSet([]Capability{c})
		if !s.Covers(c) || len(s.Lines()) != 1 || s.Lines()[0] != text {
			t.Errorf("set of %q has lines %q", text, s.Lines())
		}
		if x := s.Intersect(s).Lines(); len(x) != 1 || x[0] != text {
			t.Errorf("%q with itself: %q", text, x)
		}
		if a, err := netip.ParseAddr(c.host); err == nil && (MetadataAddr(a) || c.kind == kindHTTP && PrivateAddr(a) && !c.private) {
			t.Errorf("%q grants %s", text, a)
		}
	})
}

// The laws of sets, over generated sets and over two lines from the fuzzer.
func FuzzIntersect(f *testing.F) {
	f.Add(uint64(1), "http GET **.a.example/x/*", "http GET,POST *.a.example/*/y/*")
	f.Add(uint64(2), "artifact read ab*", "artifact read *bc")
	f.Add(uint64(3), "state read session:é*", "state read session:*\u00a9")
	f.Add(uint64(4), "secret use A* at **", "secret use *A at a.*.c.example")
	f.Fuzz(func(t *testing.T, seed uint64, one, two string) {
		g := generator{rand.New(rand.NewPCG(seed, 7))}
		a, b, c := g.set(5).Capabilities(), g.set(5).Capabilities(), g.set(4)
		if line, err := Parse(one); err == nil {
			a = append(a, line)
		}
		if line, err := Parse(two); err == nil {
			b = append(b, line)
		}
		if err := checkLaws(g, newSet(a), newSet(b), c); err != nil {
			t.Error(err)
		}
	})
}

// A request is allowed by a line for just that request or by none, and what is
// allowed is a host that nobody can mistake.
func FuzzHTTP(f *testing.F) {
	for _, u := range []string{"https://a.example/v1/x?q#f", "http://127.1/", "https://ok.test@evil/", "https://a.example/%2e%2e/x", "https://[::1]:81/", "https://a.example/a//b/*"} {
		f.Add("GET", u)
	}
	everything, err := ParseSet([]string{
		"http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS private **", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS private http://**",
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		need := NeedHTTP(method, u)
		if len(need) > 4096 {
			t.Errorf("NeedHTTP(%q, %q) has %d bytes", method, text, len(need))
		}
		c, err := Parse(need)
		if err == nil && !newSet([]Capability{c}).HTTP(method, u) {
			t.Errorf("%q does not allow %q %q", need, method, text)
		}
		if !everything.HTTP(method, u) {
			return
		}
		if _, err := netip.ParseAddr(u.Hostname()); err == nil || MetadataHost(u.Hostname()) || u.User != nil {
			t.Errorf("a wildcard allows %q", text)
		}
		if err == nil && !everything.Covers(c) && !isAddr(c.host) && c.port == defaultPort(c.scheme) {
			t.Errorf("%q is allowed and %q is not covered", text, need)
		}
	})
}
