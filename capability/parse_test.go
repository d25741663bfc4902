package capability

import (
	"errors"
	"strings"
	"testing"
)

func TestParseCanonical(t *testing.T) {
	tests := []struct{ name, line, want string }{
		{"as is", "http GET api.weather.example/v1/*", "http GET api.weather.example/v1/*"},
		{"verbs in order", "http POST,GET a.example/x", "http GET,POST a.example/x"},
		{"every verb", "http OPTIONS,DELETE,PATCH,PUT,POST,HEAD,GET a.example/", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS a.example/"},
		{"blanks", "  http   GET\ta.example/x  ", "http GET a.example/x"},
		{"upper case host", "http GET API.Example/V1", "http GET api.example/V1"},
		{"dot at the end", "http GET api.example./v1", "http GET api.example/v1"},
		{"no path", "http GET,POST **.bank.example", "http GET,POST **.bank.example/*"},
		{"any host", "http GET **", "http GET **/*"},
		{"https written", "http GET https://a.example:443/", "http GET a.example/"},
		{"http written", "http GET http://a.example/", "http GET http://a.example/"},
		{"http port written", "http GET http://a.example:80/", "http GET http://a.example/"},
		{"https at port 80", "http GET a.example:80/", "http GET a.example:80/"},
		{"other port", "http GET http://api.example.com:8080/x/*", "http GET http://api.example.com:8080/x/*"},
		{"inner star", "http GET api.*.example.com/a/*/b", "http GET api.*.example.com/a/*/b"},
		{"path escapes", "http GET a.example/%61%20%2a/é", "http GET a.example/a%20%2A/%C3%A9"},
		{"private address", "http GET private 10.1.2.3:8080/*", "http GET private 10.1.2.3:8080/*"},
		{"private name", "http GET private db.corp.example", "http GET private db.corp.example/*"},
		{"host called private", "http GET private/x", "http GET private/x"},
		{"localhost", "http GET private http://localhost:3000", "http GET private http://localhost:3000/*"},
		{"IPv6", "http GET [2606:4700::1111]:8443/x", "http GET [2606:4700::1111]:8443/x"},
		{"IPv6 in upper case", "http GET private [FD00::1]", "http GET private [fd00::1]/*"},
		{"public IPv4", "http GET 93.184.216.34/x", "http GET 93.184.216.34/x"},
		{"xn--", "http GET xn--bcher-kva.example", "http GET xn--bcher-kva.example/*"},
		{"state", "state write,read session:cart.*", "state read,write session:cart.*"},
		{"state with blanks", "state read user:my favourite key", "state read user:my favourite key"},
		{"state with colons", "state read app:a:b", "state read app:a:b"},
		{"artifact", "artifact read *.csv", "artifact read *.csv"},
		{"artifact of the user", "artifact write user:photos/*", "artifact write user:photos/*"},
		{"secret", "secret use STRIPE at api.stripe.com", "secret use STRIPE at api.stripe.com"},
		{"any secret", "secret use * at **.bank.example", "secret use * at **.bank.example"},
		{"secret at IPv6", "secret use A at [fd00::1]", "secret use A at [fd00::1]"},
		{"memory", "memory search", "memory search"},
		{"kv", "kv write,read", "kv read,write"},
		{"clock", "clock", "clock"},
		{"random", "random", "random"},
		{"log", " log ", "log"},
		{"emit", "emit", "emit"},
		{"confirm", "confirm", "confirm"},
		{"transfer", "transfer", "transfer"},
		{"escalate", "escalate", "escalate"},
		{"skip-summary", "skip-summary", "skip-summary"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse(tt.line)
			if err != nil || c.String() != tt.want {
				t.Fatalf("Parse(%q) = %q, %v; want %q", tt.line, c, err, tt.want)
			}
			if again, err := Parse(c.String()); err != nil || again != c {
				t.Errorf("Parse(%q) = %#v, %v; want %#v", c, again, err, c)
			}
			if kind, _, _ := strings.Cut(tt.want, " "); c.Kind() != kind {
				t.Errorf("Kind() = %q, want %q", c.Kind(), kind)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ name, line, what string }{
		{"empty", "  ", "empty"},
		{"unknown kind", "https GET a.example", `kind "https" is unknown`},
		{"no verb", "http", "http needs GET,"},
		{"unknown verb", "http FETCH a.example", `http has no verb "FETCH"`},
		{"lower case", "http get a.example", `http has no verb "get"`},
		{"any verb", "http * a.example", `http has no verb "*"`},
		{"connect", "http CONNECT a.example", `http has no verb "CONNECT"`},
		{"verb twice", "http GET,GET a.example", "GET is written twice"},
		{"empty verb", "http GET, a.example", `http has no verb ""`},
		{"no host", "http GET", "http needs a host"},
		{"private without host", "http GET private", "http needs a host"},
		{"more fields", "http GET a.example b.example", `"b.example" stands after`},
		{"words after", "log everything", `"everything" stands after`},
		{"newline", "log\nlog", `kind "log\nlog" is unknown`},

		{"star under a label", "http GET *.com", "a wildcard may not stand directly under a single label"},
		{"stars under a label", "http GET **.com", "a wildcard may not stand directly under a single label"},
		{"star alone", "http GET *", "a wildcard may not stand directly under a single label"},
		{"star at the end", "http GET example.*", "a wildcard may not stand directly under a single label"},
		{"star inside", "http GET api.*.com", "a wildcard may not stand directly under a single label"},
		{"part of a label", "http GET api-*.example.com", "a wildcard stands for a whole label"},
		{"stars inside", "http GET a.**.example.com", "** may only stand in front"},
		{"star after stars", "http GET **.*.example.com", "* may not follow **"},
		{"three stars", "http GET ***.example.com", "a wildcard stands for a whole label"},
		{"empty label", "http GET a..example", `host label "" is not allowed`},
		{"hyphen", "http GET -a.example", `host label "-a" is not allowed`},
		{"not ASCII", "http GET bücher.example", "is not allowed"},
		{"fullwidth", "http GET ①②⑦.0.0.1", "is not allowed"},
		{"long label", "http GET " + strings.Repeat("a", 64) + ".example", "is not allowed"},
		{"long host", "http GET " + strings.Repeat("a.", 127) + "example", "exceeds 253 bytes"},

		{"private without the word", "http GET 10.1.2.3:8080/*", "10.1.2.3 is a private address"},
		{"loopback", "http GET http://127.0.0.1", "127.0.0.1 is a private address"},
		{"localhost", "http GET localhost", "localhost is a private address"},
		{"below localhost", "http GET app.LOCALHOST.", "app.localhost is a private address"},
		{"private IPv6", "http GET [fd00::1]", "[fd00::1] is a private address"},
		{"NAT64", "http GET [64:ff9b::5db8:d822]", "is a private address"},
		{"metadata address", "http GET private 169.254.169.254", "belongs to a metadata service"},
		{"metadata IPv6", "http GET private [fd00:ec2::254]", "belongs to a metadata service"},
		{"metadata in NAT64", "http GET private [64:ff9b::a9fe:a9fe]", "belongs to a metadata service"},
		{"metadata name", "http GET private http://Metadata.Google.Internal./x", "belongs to a metadata service"},
		{"below a metadata name", "http GET private *.metadata.google.internal", "belongs to a metadata service"},
		{"secret for metadata", "secret use A at 100.100.100.200", "belongs to a metadata service"},
		{"decimal address", "http GET private 2130706433", "is no canonical IP address"},
		{"hexadecimal address", "http GET private 0x7f.1", "is no canonical IP address"},
		{"octal address", "http GET private 0177.0.0.1", "is no canonical IP address"},
		{"short address", "http GET private 127.1", "is no canonical IP address"},
		{"address with a dot", "http GET private 127.0.0.1.", "is no canonical IP address"},
		{"wildcard address", "http GET private *.0.0.1", "is no canonical IP address"},
		{"mapped address", "http GET private [::ffff:127.0.0.1]", "is no canonical IPv6 address"},
		{"zone", "http GET private [fe80::1%25eth0]", "is no canonical IPv6 address"},
		{"long IPv6", "http GET private [fd00:0:0:0:0:0:0:1]", "is no canonical IPv6 address"},
		{"IPv4 in brackets", "http GET private [10.0.0.1]", "is no canonical IPv6 address"},
		{"bare IPv6", "http GET private fd00::1", "more than one colon"},

		{"other scheme", "http GET ftp://a.example", `scheme "ftp" cannot be granted`},
		{"user name", "http GET bob@a.example", "a user name"},
		{"query", "http GET a.example/x?y", `"?" cannot be part`},
		{"fragment", "http GET a.example/x#y", `"#" cannot be part`},
		{"backslash", `http GET a.example\x`, `"\\" cannot be part`},
		{"port zero", "http GET a.example:0", `port "0"`},
		{"port spelling", "http GET a.example:0443", `port "0443"`},
		{"large port", "http GET a.example:65536", `port "65536"`},
		{"no port", "http GET a.example:/x", "no port stands after the colon"},
		{"any port", "http GET a.example:*/x", `port "*"`},
		{"after the address", "http GET private [fd00::1]x", `"x" stands after the address`},
		{"dot segment", "http GET a.example/v1/../x", `path segment "..": dot segment`},
		{"encoded dots", "http GET a.example/v1/%2e%2E/x", "dot segment"},
		{"encoded slash", "http GET a.example/a%2fb", "slash or backslash inside"},
		{"empty segment", "http GET a.example//x", `path segment "": empty`},
		{"escaped twice", "http GET a.example/%252e", "escaped twice"},
		{"bad escape", "http GET a.example/%zz", "bad percent escape"},
		{"part of a segment", "http GET a.example/v*", "a wildcard stands for a whole segment"},
		{"stars in a path", "http GET a.example/**/x", "** cannot be part of a path"},
		{"long segment", "http GET a.example/" + strings.Repeat("a", 257), "exceeds 256 bytes"},
		{"many segments", "http GET a.example" + strings.Repeat("/a", 33), "33 segments: at most 32"},
		{"long line", "http GET a.example/" + strings.Repeat("a", MaxLine), "bytes exceed 16384"},

		{"no scope", "state read cart", "no known scope"},
		{"unknown scope", "state read run:cart", "no known scope"},
		{"scope in upper case", "state read App:price", "no known scope"},
		{"any scope", "state read *", "no known scope"},
		{"no key", "state read app:", "empty"},
		{"scope in scope", "state write session:app:price", "colon without a known scope"},
		{"framework key", "state read session:adk_x", "belongs to the framework"},
		{"framework key in upper case", "state read temp:_SBX_*", "belongs to the framework"},
		{"two stars", "state read session:*x*", "more than one wildcard"},
		{"NUL in key", "state read app:\x00", "character that cannot be printed"},
		{"direction override", "state read app:\u202ex", "character that cannot be printed"},
		{"bad UTF-8", "state read app:\xff", "not UTF-8"},
		{"long key", "state read app:" + strings.Repeat("k", MaxName+1), "exceeds 256 bytes"},
		{"space after scope", "state read app: x", "begins or ends with a space"},

		{"no artifact", "artifact read", "empty"},
		{"artifact above", "artifact read ../x", "path with an empty or dot segment"},
		{"absolute artifact", "artifact read /etc/passwd", "path with an empty or dot segment"},
		{"folder", "artifact read logs/", "path with an empty or dot segment"},
		{"artifact backslash", `artifact read a\b`, "backslash"},
		{"artifact scope", "artifact write app:x", "colon without a known scope"},
		{"artifact above for the user", "artifact read user:a/../b", "path with an empty or dot segment"},

		{"secret without host", "secret use A", "want secret use NAME at HOST"},
		{"secret without at", "secret use A a.example b", "want secret use NAME at HOST"},
		{"secret reads", "secret read A at a.example", `secret has no verb "read"`},
		{"secret name", "secret use A-B at a.example", "want letters, digits, _"},
		{"secret with path", "secret use A at a.example/x", "bound to a host alone"},
		{"secret with two stars", "secret use *A* at a.example", "want letters, digits, _"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse(tt.line)
			if err == nil {
				t.Fatalf("Parse(%q) = %q; want error with %q", tt.line, c, tt.what)
			}
			syntax, ok := errors.AsType[*SyntaxError](err)
			if !ok || !errors.Is(err, ErrSyntax) {
				t.Fatalf("Parse(%q): error %T %v is no SyntaxError", tt.line, err, err)
			}
			if syntax.Line != tt.line || !strings.Contains(syntax.What, tt.what) {
				t.Errorf("Parse(%q): what %q; want %q", tt.line, syntax.What, tt.what)
			}
			if c != (Capability{}) {
				t.Errorf("Parse(%q) = %q beside an error", tt.line, c)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("Parse(%q): message of %d bytes", tt.line, len(err.Error()))
			}
		})
	}
}

func TestSyntaxErrorText(t *testing.T) {
	_, err := Parse("http GET *.com")
	const want = `capability "http GET *.com": a wildcard may not stand directly under a single label`
	if err == nil || err.Error() != want {
		t.Errorf("error %v; want %s", err, want)
	}
	for line, hint := range map[string]string{
		"http GET *.com":    "name the host, or *.example.com",
		"http GET 10.1.2.3": "write private before the host",
		"http get a.b":      "write GET",
	} {
		_, err := Parse(line)
		if syntax, ok := errors.AsType[*SyntaxError](err); !ok || syntax.Hint != hint {
			t.Errorf("Parse(%q): error %#v; want hint %q", line, err, hint)
		}
	}
}

func TestZeroCapability(t *testing.T) {
	var c Capability
	if c.String() != "" || c.Kind() != "" || c.Words() != "" || c.Wide() {
		t.Errorf("zero capability says %q %q %q %v", c, c.Kind(), c.Words(), c.Wide())
	}
	if mustSet(t, "http GET **", "log").Covers(c) {
		t.Error("a set covers the zero capability")
	}
}

func mustParse(t testing.TB, line string) Capability {
	t.Helper()
	c, err := Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustSet(t testing.TB, lines ...string) Set {
	t.Helper()
	s, err := ParseSet(lines)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
