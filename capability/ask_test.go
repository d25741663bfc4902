package capability

import (
	"net/url"
	"strings"
	"testing"
)

func TestHTTP(t *testing.T) {
	const yes, no = true, false
	tests := []struct {
		name, grant, method, url string
		want                     bool
	}{
		{"exact", "http GET a.example/x", "GET", "https://a.example/x", yes},
		{"query is not compared", "http GET a.example/x", "GET", "https://a.example/x?q=../%2f", yes},
		{"fragment is not compared", "http GET ok.test", "GET", "https://ok.test#@evil", yes},
		{"other method", "http GET a.example/x", "POST", "https://a.example/x", no},
		{"HEAD is not GET", "http GET a.example/x", "HEAD", "https://a.example/x", no},
		{"no method", "http GET a.example/x", "", "https://a.example/x", no},
		{"method in lower case", "http GET a.example/x", "get", "https://a.example/x", no},
		{"one of several methods", "http GET,POST a.example/x", "POST", "https://a.example/x", yes},
		{"other kind", "secret use A at a.example", "GET", "https://a.example/x", no},

		{"https only", "http GET a.example", "GET", "http://a.example/", no},
		{"http only", "http GET http://a.example", "GET", "https://a.example/", no},
		{"http", "http GET http://a.example", "GET", "http://a.example/", yes},
		{"default port", "http GET a.example", "GET", "https://a.example:443/", yes},
		{"ssh port", "http GET ok.test", "GET", "https://ok.test:22/", no},
		{"listed port", "http GET ok.test:8443", "GET", "https://ok.test:8443/", yes},
		{"port not default", "http GET ok.test:8443", "GET", "https://ok.test/", no},

		{"upper case", "http GET a.example", "GET", "https://A.EXAMPLE/", yes},
		{"dot at the end", "http GET a.example", "GET", "https://a.example./", yes},
		{"two dots at the end", "http GET a.example", "GET", "https://a.example../", no},
		{"one label", "http GET *.example.com", "GET", "https://a.example.com/", yes},
		{"no label", "http GET *.example.com", "GET", "https://example.com/", no},
		{"glued", "http GET *.example.com", "GET", "https://evilexample.com/", no},
		{"two labels", "http GET *.example.com", "GET", "https://a.b.example.com/", no},
		{"suffix", "http GET *.example.com", "GET", "https://example.com.evil/", no},
		{"label and suffix", "http GET *.example.com", "GET", "https://a.example.com.evil/", no},
		{"many labels", "http GET **.example.com", "GET", "https://a.b.example.com/", yes},
		{"stars need a label", "http GET **.example.com", "GET", "https://example.com/", no},
		{"stars and glue", "http GET **.example.com", "GET", "https://evilexample.com/", no},
		{"inner star", "http GET api.*.example.com", "GET", "https://api.eu.example.com/", yes},
		{"inner star, other head", "http GET api.*.example.com", "GET", "https://web.eu.example.com/", no},
		{"any host", "http GET **", "GET", "https://a.b.c/", yes},
		{"any host, single label", "http GET **", "GET", "https://intranet/", yes},
		{"the pattern itself", "http GET **", "GET", "https://*.example.com/", no},

		{"user name", "http GET **", "GET", "https://bob@ok.test/", no},
		{"host as user name", "http GET ok.test", "GET", "https://ok.test@evil/", no},
		{"empty user name", "http GET ok.test", "GET", "https://@ok.test/", no},
		{"no scheme", "http GET **", "GET", "//evil/", no},
		{"other scheme", "http GET **", "GET", "file:///etc/passwd", no},
		{"gopher", "http GET **", "GET", "gopher://ok.test/", no},
		{"opaque", "http GET **", "GET", "https:ok.test", no},
		{"no host", "http GET **", "GET", "https:///x", no},

		{"public address", "http GET 93.184.216.34", "GET", "https://93.184.216.34/", yes},
		{"no wildcard covers an address", "http GET **", "GET", "https://93.184.216.34/", no},
		{"private address", "http GET private 10.1.2.3:8080/*", "GET", "https://10.1.2.3:8080/x", yes},
		{"IPv6", "http GET private [fd00::1]", "GET", "https://[fd00::1]/", yes},
		{"IPv6 in other words", "http GET private [fd00::1]", "GET", "https://[fd00:0::1]/", no},
		{"localhost", "http GET **", "GET", "https://localhost/", no},
		{"LOCALHOST.", "http GET **", "GET", "https://LOCALHOST./", no},
		{"below localhost", "http GET **", "GET", "https://a.localhost/", no},
		{"private localhost", "http GET private **", "GET", "https://localhost/", yes},

		{"root", "http GET a.example", "GET", "https://a.example", yes},
		{"exact root", "http GET a.example/", "GET", "https://a.example", yes},
		{"not the root", "http GET a.example/", "GET", "https://a.example/x", no},
		{"below", "http GET a.example/v1/*", "GET", "https://a.example/v1/x/y", yes},
		{"just below", "http GET a.example/v1/*", "GET", "https://a.example/v1/", yes},
		{"not below", "http GET a.example/v1/*", "GET", "https://a.example/v1", no},
		{"glued path", "http GET a.example/v1/*", "GET", "https://a.example/v10/x", no},
		{"path case", "http GET a.example/v1/*", "GET", "https://a.example/V1/x", no},
		{"one segment", "http GET a.example/u/*/x", "GET", "https://a.example/u/7/x", yes},
		{"two segments", "http GET a.example/u/*/x", "GET", "https://a.example/u/7/8/x", no},
		{"segment is not empty", "http GET a.example/u/*/*", "GET", "https://a.example/u//x", no},
		{"decoded", "http GET a.example/caf%C3%A9/a%20b", "GET", "https://a.example/café/a b", yes},
		{"encoded", "http GET a.example/v1/*", "GET", "https://a.example/%76%31/x", yes},
		{"literal star", "http GET a.example/%2a", "GET", "https://a.example/*", yes},
		{"star is not one", "http GET a.example/%2a", "GET", "https://a.example/x", no},
		{"percent sign", "http GET a.example/*", "GET", "https://a.example/100%25", yes},
		{"dots", "http GET a.example/v1/*", "GET", "https://a.example/v1/../admin", no},
		{"dots that stay inside", "http GET a.example/v1/*", "GET", "https://a.example/v1/a/../b", no},
		{"one dot", "http GET a.example/v1/*", "GET", "https://a.example/v1/./x", no},
		{"dots at the end", "http GET a.example/v1/*", "GET", "https://a.example/v1/..", no},
		{"encoded dots", "http GET a.example/v1/*", "GET", "https://a.example/v1/%2e%2e/admin", no},
		{"half encoded dots", "http GET a.example/v1/*", "GET", "https://a.example/v1/.%2E/admin", no},
		{"dots with parameters", "http GET a.example/v1/*", "GET", "https://a.example/v1/..;x=1/admin", no},
		{"dots with a space", "http GET a.example/v1/*", "GET", "https://a.example/v1/..%20/admin", no},
		{"doubly encoded dots", "http GET a.example/v1/*", "GET", "https://a.example/v1/%252e%252e/admin", no},
		{"three dots", "http GET a.example/v1/*", "GET", "https://a.example/v1/.../x", yes},
		{"encoded slash", "http GET a.example/v1/*", "GET", "https://a.example/v1/..%2fadmin", no},
		{"encoded backslash", "http GET a.example/v1/*", "GET", "https://a.example/v1/..%5cadmin", no},
		{"overlong dot", "http GET a.example/v1/*", "GET", "https://a.example/v1/%c0%ae%c0%ae/admin", no},
		{"NUL", "http GET a.example/v1/*", "GET", "https://a.example/v1/x%00.png", no},
		{"encoded newline", "http GET a.example/v1/*", "GET", "https://a.example/v1/%0d%0aHost:x", no},
		{"two slashes", "http GET a.example/v1/*", "GET", "https://a.example//v1/x", no},
		{"two slashes inside", "http GET a.example/v1/*", "GET", "https://a.example/v1//admin", no},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := url.Parse(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			s := mustSet(t, tt.grant)
			if got := s.HTTP(tt.method, u); got != tt.want {
				t.Errorf("%q: HTTP(%s, %s) = %v, want %v", tt.grant, tt.method, tt.url, got, tt.want)
			}
			if private := s.HTTPPrivate(tt.method, u); private != (tt.want && strings.Contains(tt.grant, "private")) {
				t.Errorf("%q: HTTPPrivate(%s, %s) = %v", tt.grant, tt.method, tt.url, private)
			}
		})
	}
}

// What net/url refuses or a caller builds by hand.
func TestHTTPRefusesWhatNobodyGrants(t *testing.T) {
	s := mustSet(t, "http GET private **", "http GET private http://**", "http GET private 127.0.0.1", "http GET private [::1]")
	for _, text := range []string{
		"http://2130706433/", "http://0x7f.1/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1./",
		"http://[::ffff:127.0.0.1]/", "http://[::1%25eth0]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::]/",
		"http://①②⑦.0.0.1/", "http://bücher.example/", "http://169.254.169.254/latest/", "http://[fd00:ec2::254]/",
		"http://metadata.google.internal/", "http://METADATA.google.internal./", "http://metadata/", "http://x.metadata.goog/",
		"http://100.100.100.200/", "http://192.0.0.192/", "http://a_b..c/", "http://" + strings.Repeat("a.", 127) + "c/",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if s.HTTP("GET", u) || s.HTTPPrivate("GET", u) {
			t.Errorf("%s is allowed", text)
		}
	}
	for _, u := range []*url.URL{
		nil,
		{},
		{Scheme: "HTTPS", Host: "a.example"},
		{Scheme: "https", Host: `a.example\@b.example`},
		{Scheme: "https", Host: "a.example\n"},
		{Scheme: "https", Host: "a.example:"},
		{Scheme: "https", Host: "a.example:0"},
		{Scheme: "https", Host: "a.example:99999"},
		{Scheme: "https", Host: "a.example:0443"},
		{Scheme: "https", Host: "a.example:1:443"},
		{Scheme: "https", Host: "a.example:x"},
		{Scheme: "https", Host: "::1"},
		{Scheme: "https", Host: "[a.example]"},
		{Scheme: "https", Host: "a.example/x"},
		{Scheme: "https", Host: "a.example", Path: "x"},
		{Scheme: "https", Host: "a.example", Path: "*"},
		{Scheme: "https", Host: "a.example", Path: "/x\ny"},
		{Scheme: "https", Host: "a.example", Path: "/../x"},
		{Scheme: "https", Host: "a.example", Path: "/", RawQuery: "a\r\nb"},
		{Scheme: "https", Opaque: "//a.example/x"},
		{Scheme: "https", Host: "a.example", Opaque: "//b.example/x"},
		{Scheme: "https", Host: "a.example", User: url.User("")},
	} {
		if s.HTTP("GET", u) {
			t.Errorf("%#v is allowed", u)
		}
	}
	for _, text := range []string{`https://ok.test\@evil`, "https://ok.test/\t", "https://ok.test/\n"} {
		if u, err := url.Parse(text); err == nil && s.HTTP("GET", u) {
			t.Errorf("%q is allowed", text)
		}
	}
}

func TestNeedHTTP(t *testing.T) {
	tests := []struct{ name, method, url, want string }{
		{"plain", "GET", "https://api.weather.example/v1/daily?days=3&q=Oslo", "http GET api.weather.example/v1/daily"},
		{"root", "POST", "https://A.example", "http POST a.example/"},
		{"port", "GET", "http://a.example:8080/x", "http GET http://a.example:8080/x"},
		{"private", "GET", "https://10.1.2.3/x", "http GET private 10.1.2.3/x"},
		{"localhost", "GET", "http://localhost/", "http GET private http://localhost/"},
		{"star", "GET", "https://a.example/*", "http GET a.example/%2A"},
		{"metadata", "GET", "http://169.254.169.254/latest", `http GET "http://169.254.169.254/latest"`},
		{"wildcard host", "GET", "https://*.example.com/*", `http GET "https://*.example.com/*"`},
		{"method", "GET,POST", "https://a.example/x", `http "GET,POST" "https://a.example/x"`},
		{"user name", "GET", "https://bob:secret@a.example/x", `http GET "https://a.example/x"`},
		{"dots", "GET", "https://a.example/../x", `http GET "https://a.example/../x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := url.Parse(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			got := NeedHTTP(tt.method, u)
			if got != tt.want {
				t.Errorf("NeedHTTP(%s, %s) = %s, want %s", tt.method, tt.url, got, tt.want)
			}
			c, err := Parse(got)
			if quoted := strings.Contains(tt.want, `"`); quoted != (err != nil) {
				t.Fatalf("Parse(%q) = %q, %v", got, c, err)
			}
			if err == nil && !mustSet(t, got).HTTP(tt.method, u) {
				t.Errorf("%q does not allow %s", got, tt.url)
			}
		})
	}
	if got := NeedHTTP("GET", nil); got != `http GET "nowhere"` {
		t.Errorf("NeedHTTP of no URL = %s", got)
	}
	long := NeedHTTP("GET", &url.URL{Scheme: "https", Host: strings.Repeat("x\u202e", 9999)})
	if len(long) > 2048 || strings.ContainsAny(long, "\u202e") {
		t.Errorf("NeedHTTP of a hostile host has %d bytes: %s", len(long), long)
	}
}

func TestNames(t *testing.T) {
	const yes, no = true, false
	tests := []struct {
		name, grant string
		ask         func(Set) bool
		want        bool
	}{
		{"read", "state read session:cart.*", func(s Set) bool { return s.StateRead("session:cart.items") }, yes},
		{"read is not write", "state read session:cart.*", func(s Set) bool { return s.StateWrite("session:cart.items") }, no},
		{"write is not read", "state write session:cart.*", func(s Set) bool { return s.StateRead("session:cart.items") }, no},
		{"star covers nothing", "state read session:cart.*", func(s Set) bool { return s.StateRead("session:cart.") }, yes},
		{"star covers slashes", "state read session:*", func(s Set) bool { return s.StateRead("session:a/b c") }, yes},
		{"ends overlap", "state read session:aba*aba", func(s Set) bool { return s.StateRead("session:aba") }, no},
		{"exact", "state read user:unit", func(s Set) bool { return s.StateRead("user:unit") }, yes},
		{"longer", "state read user:unit", func(s Set) bool { return s.StateRead("user:units") }, no},
		{"other scope", "state write session:*", func(s Set) bool { return s.StateWrite("app:price") }, no},
		{"user scope", "state write session:*", func(s Set) bool { return s.StateWrite("user:role") }, no},
		{"temp scope", "state write session:*", func(s Set) bool { return s.StateWrite("temp:x") }, no},
		{"no scope", "state write session:*", func(s Set) bool { return s.StateWrite("price") }, no},
		{"scope in scope", "state write session:*", func(s Set) bool { return s.StateWrite("session:app:price") }, no},
		{"unknown scope in scope", "state write session:*", func(s Set) bool { return s.StateWrite("session:x:y") }, no},
		{"scope in upper case", "state write app:*", func(s Set) bool { return s.StateWrite("App:price") }, no},
		{"space before scope", "state write app:*", func(s Set) bool { return s.StateWrite(" app:price") }, no},
		{"space after scope", "state write app:*", func(s Set) bool { return s.StateWrite("app: price") }, no},
		{"NUL", "state write app:*", func(s Set) bool { return s.StateWrite("app:\x00") }, no},
		{"bad UTF-8", "state write app:*", func(s Set) bool { return s.StateWrite("app:\xff") }, no},
		{"empty key", "state write app:*", func(s Set) bool { return s.StateWrite("app:") }, no},
		{"long key", "state write app:*", func(s Set) bool { return s.StateWrite("app:" + strings.Repeat("k", MaxName+1)) }, no},
		{"longest key", "state write app:*", func(s Set) bool { return s.StateWrite("app:" + strings.Repeat("k", MaxName)) }, yes},
		{"framework key", "state write session:*", func(s Set) bool { return s.StateWrite("session:adk_x") }, no},
		{"own key of the host", "state write session:*", func(s Set) bool { return s.StateWrite("session:_sbx_fuel") }, no},
		{"star in a key", "state write session:*", func(s Set) bool { return s.StateWrite("session:*") }, no},

		{"artifact", "artifact read *.csv", func(s Set) bool { return s.ArtifactRead("logs/a.csv") }, yes},
		{"other ending", "artifact read *.csv", func(s Set) bool { return s.ArtifactRead("a.csv.exe") }, no},
		{"artifact write", "artifact read *.csv", func(s Set) bool { return s.ArtifactWrite("a.csv") }, no},
		{"written", "artifact write out/*", func(s Set) bool { return s.ArtifactWrite("out/a") }, yes},
		{"inside", "artifact read invoices/*.json", func(s Set) bool { return s.ArtifactRead("invoices/7.json") }, yes},
		{"above", "artifact read *", func(s Set) bool { return s.ArtifactRead("../x") }, no},
		{"above later", "artifact read logs/*", func(s Set) bool { return s.ArtifactRead("logs/../../x") }, no},
		{"absolute", "artifact read *", func(s Set) bool { return s.ArtifactRead("/etc/passwd") }, no},
		{"backslash", "artifact read *", func(s Set) bool { return s.ArtifactRead(`..\x`) }, no},
		{"of the user", "artifact read,write *", func(s Set) bool { return s.ArtifactWrite("user:x") }, no},
		{"of the user, granted", "artifact write user:*", func(s Set) bool { return s.ArtifactWrite("user:x") }, yes},
		{"of the session", "artifact write user:*", func(s Set) bool { return s.ArtifactWrite("x") }, no},
		{"above for the user", "artifact write user:*", func(s Set) bool { return s.ArtifactWrite("user:../x") }, no},

		{"secret", "secret use A at a.example", func(s Set) bool { return s.Secret("A", "a.example") }, yes},
		{"secret, written otherwise", "secret use A at a.example", func(s Set) bool { return s.Secret("A", "A.Example.") }, yes},
		{"secret elsewhere", "secret use A at a.example", func(s Set) bool { return s.Secret("A", "b.example") }, no},
		{"other secret", "secret use A at a.example", func(s Set) bool { return s.Secret("B", "a.example") }, no},
		{"secret below", "secret use * at **.bank.example", func(s Set) bool { return s.Secret("TOKEN", "pay.bank.example") }, yes},
		{"secret family", "secret use BANK_* at a.example", func(s Set) bool { return s.Secret("BANK_TOKEN", "a.example") }, yes},
		{"secret star", "secret use * at a.example", func(s Set) bool { return s.Secret("*", "a.example") }, no},
		{"secret for metadata", "secret use * at **", func(s Set) bool { return s.Secret("A", "metadata.google.internal") }, no},
		{"secret for an address", "secret use * at **", func(s Set) bool { return s.Secret("A", "93.184.216.34") }, no},
		{"secret for a number", "secret use * at **", func(s Set) bool { return s.Secret("A", "2130706433") }, no},

		{"kv read", "kv read", Set.KVRead, yes},
		{"kv read is not write", "kv read", Set.KVWrite, no},
		{"kv write", "kv write", Set.KVWrite, yes},
		{"kv write is not read", "kv write", Set.KVRead, no},
		{"has", "memory search", func(s Set) bool { return s.Has("memory") }, yes},
		{"has not", "memory search", func(s Set) bool { return s.Has("log") }, no},
		{"has nothing", "memory search", func(s Set) bool { return s.Has("") }, no},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.ask(mustSet(t, tt.grant)); got != tt.want {
				t.Errorf("%q: %v, want %v", tt.grant, got, tt.want)
			}
			if tt.ask(Set{}) {
				t.Error("the zero set allows it")
			}
		})
	}
}
