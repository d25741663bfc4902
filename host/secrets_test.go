package host

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

const bankToken = `tok"en/+ <0123456789>`

func secrets(t testing.TB, values map[string]string) *Secrets {
	t.Helper()
	s, err := NewSecrets(values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bank is a call that may use BANK_TOKEN at bank.example, and has another secret.
func bank(t testing.TB, n *internet, lines ...string) *Call {
	return &Call{Grants: grants(t, append([]string{"http GET bank.example/*", "http GET evil.example/*", "http GET *.pay.example/*", "secret use BANK_TOKEN at *.pay.example", "log"}, lines...)...),
		Access: Access{Egress: n.egress(), Secrets: secrets(t, map[string]string{"BANK_TOKEN": bankToken, "OTHER": "another value"}),
			Log: func(string, string) {}}}
}

const withToken = `"secrets":[{"secret":"BANK_TOKEN","header":"authorization","prefix":"Bearer "}]`

// echoes are the ways in which servers give back what they were sent.
var echoes = map[string]func(value string) string{
	"plain":      func(v string) string { return v },
	"twice":      func(v string) string { return v + v },
	"json":       func(v string) string { b, _ := json.Marshal(v); return string(b) },
	"json, bare": func(v string) string { b, _ := abi.Marshal(v); return string(b) },
	"json, php":  func(v string) string { b, _ := abi.Marshal(v); return strings.ReplaceAll(string(b), "/", `\/`) },
	"html":       html.EscapeString,
	"query":      url.QueryEscape,
	"path":       url.PathEscape,
	"query, low": func(v string) string { return lowerEscapes(url.QueryEscape(v)) },
	"hex":        func(v string) string { return hex.EncodeToString([]byte(v)) },
	"HEX":        func(v string) string { return strings.ToUpper(hex.EncodeToString([]byte(v))) },
	"base64":     func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) },
	"base64 url": func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) },
	"basic":      func(v string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + v)) },
	"in base64":  func(v string) string { return base64.StdEncoding.EncodeToString([]byte(`{"t":"` + v + `"}`)) },
	"in base64+": func(v string) string { return base64.URLEncoding.EncodeToString([]byte(`{"tt":"` + v + `"}`)) },
}

// The host puts the value in; whatever comes back, the guest does not read it.
func TestSecretUsed(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		if auth != "Bearer "+bankToken {
			w.WriteHeader(401)
			return
		}
		echo := echoes[r.URL.Query().Get("how")](strings.TrimPrefix(auth, "Bearer "))
		w.Header().Set("X-Echo", "<"+echo+">")
		w.Header()["X-Several"] = []string{"a", echo}
		w.WriteHeader(201)
		io.WriteString(w, "you sent "+echo+".")
	})
	m := loadGo(t)
	for how, encode := range echoes {
		var traced []HostCall
		c := bank(t, n)
		c.Trace = func(h HostCall) { traced = append(traced, h) }
		out, receipt := ask(t, m, c, "http", `{"url":"https://api.pay.example/v1?how=`+url.QueryEscape(how)+`",`+withToken+`}`)
		var head abi.HTTPReply
		if err := abi.Decode([]byte(out[0].Head), &head); err != nil || head.Status != 201 {
			t.Fatalf("%s: %+v, %v", how, out[0], err)
		}
		all := out[0].Text + fmt.Sprint(head.Headers) + fmt.Sprintf("%+v %+v", traced, receipt)
		// What base64 shares with its neighbours stays: at most two characters at each end.
		if core := encode(bankToken); strings.Contains(all, core[2:len(core)-4]) || !strings.Contains(out[0].Text, "[secret BANK_TOKEN]") ||
			!strings.Contains(head.Headers["x-echo"], "[secret BANK_TOKEN]") || !strings.Contains(head.Headers["x-several"], "a, [secret BANK_TOKEN]") && how != "in base64" && how != "in base64+" && how != "basic" && !strings.HasPrefix(how, "json") {
			t.Errorf("%s: the guest reads %q and %v", how, out[0].Text, head.Headers)
		}
		if got := fmt.Sprint(receipt.Used, receipt.Denied, traced[0].Scrubbed); got != "[http GET api.pay.example/v1 secret use BANK_TOKEN at api.pay.example] [] [BANK_TOKEN]" {
			t.Errorf("%s: used, denied and scrubbed %s", how, got)
		}
	}
}

// A tracer that asks for bodies gets them without secrets, whoever wrote these there;
// one that does not gets none.
func TestTraceBodies(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "got "+r.Header.Get("Authorization")) })
	m := loadGo(t)
	var traced []HostCall
	c := bank(t, n, "kv write", "log")
	c.Access.KV, c.Access.Log = NewMemoryKV(nil).Scope(KVScope{}), func(string, string) {}
	c.Trace = func(h HostCall) { traced = append(traced, h) }
	message, err := abi.Marshal(abi.LogRequest{Message: strings.Repeat("-", 64) + bankToken, Level: "info"})
	if err != nil {
		t.Fatal(err)
	}
	calls := []string{"http", `{"url":"https://api.pay.example/v1?t=` + url.QueryEscape(bankToken) + `",` + withToken + "}\x00please " + bankToken,
		"kv_add", `{"key":"n","n":1,"most":3,"ttl_ms":60000}`, "log", string(message)}
	for _, bodies := range []bool{true, false} {
		traced, c.TraceBodies = nil, bodies
		ask(t, m, c, calls...)
		got := ""
		for _, h := range traced {
			got += fmt.Sprintf("%s %s\n  sent %s\n  got %s\n", h.Name, h.Detail, h.Sent, h.Got)
		}
		dashes := strings.Repeat("-", 64)
		want := "http GET https://api.pay.example/v1?t=[secret BANK_TOKEN]\n  sent please [secret BANK_TOKEN]\n  got got Bearer [secret BANK_TOKEN]\n" +
			`kv_add n` + "\n" + `  sent {"key":"n","n":1,"most":3,"ttl_ms":60000}` + "\n" + `  got {"added":true,"count":1}` + "\n" +
			"log " + dashes + "[sec…truncated\n" + `  sent {"level":"info","message":"` + dashes + `[secret BANK_TOKEN]"}` + "\n  got \n"
		if !bodies {
			want = "http GET https://api.pay.example/v1?t=[secret BANK_TOKEN]\n  sent \n  got \nkv_add n\n  sent \n  got \nlog " + dashes + "[sec…truncated\n  sent \n  got \n"
		}
		if got != want {
			t.Errorf("with bodies %v:\n got %s\nwant %s", bodies, got, want)
		}
	}
}

// None of these sends a secret, and none says more than what was needed.
func TestSecretDenied(t *testing.T) {
	n := newInternet(t, func(http.ResponseWriter, *http.Request) {})
	n.names["plain.pay.example"] = []string{"93.184.216.34"}
	m := loadGo(t)
	use := func(name, header, prefix string) string {
		b, _ := abi.Marshal([]abi.UseSecret{{Secret: name, Header: header, Prefix: prefix}})
		return `"secrets":` + string(b)
	}
	for _, c := range []struct {
		name, request string
		code          abi.Code
		need          string
	}{
		{"not granted here", `{"url":"https://bank.example/",` + withToken + `}`, abi.CapabilityDenied, "secret use BANK_TOKEN at bank.example"},
		{"a host that ends like it", `{"url":"https://pay.example/",` + withToken + `}`, abi.CapabilityDenied, "secret use BANK_TOKEN at pay.example"},
		{"another secret", `{"url":"https://api.pay.example/",` + use("OTHER", "X", "") + `}`, abi.CapabilityDenied, "secret use OTHER at api.pay.example"},
		{"a secret that is not there", `{"url":"https://api.pay.example/",` + use("NONE", "X", "") + `}`, abi.CapabilityDenied, "secret use NONE at api.pay.example"},
		{"every secret", `{"url":"https://api.pay.example/",` + use("*", "X", "") + `}`, abi.CapabilityDenied, "secret use * at api.pay.example"},
		{"no name", `{"url":"https://api.pay.example/",` + use("", "X", "") + `}`, abi.CapabilityDenied, "secret use  at api.pay.example"},
		{"no grant for the request", `{"url":"https://api.pay.example/","method":"DELETE",` + withToken + `}`, abi.CapabilityDenied, "http DELETE api.pay.example/"},
		{"in the open", `{"url":"http://plain.pay.example/",` + withToken + `}`, abi.EgressDenied, "over https only"},
		{"in place of the host", `{"url":"https://api.pay.example/",` + use("BANK_TOKEN", "host", "") + `}`, abi.EgressDenied, "header Host"},
		{"no header", `{"url":"https://api.pay.example/",` + use("BANK_TOKEN", "", "") + `}`, abi.EgressDenied, "not a token"},
		{"two headers", `{"url":"https://api.pay.example/",` + use("BANK_TOKEN", "A\r\nB", "") + `}`, abi.EgressDenied, "not a token"},
		{"a prefix with a line", `{"url":"https://api.pay.example/",` + use("BANK_TOKEN", "A", "x\r\nHost: evil.example\r\nB: ") + `}`, abi.EgressDenied, "control"},
		{"a long prefix", `{"url":"https://api.pay.example/",` + use("BANK_TOKEN", "A", strings.Repeat("x", 257)) + `}`, abi.EgressDenied, "256"},
		{"a header that is there", `{"url":"https://api.pay.example/","headers":{"AUTHORIZATION":"x"},` + withToken + `}`, abi.EgressDenied, "twice"},
		{"twice in one header", `{"url":"https://api.pay.example/","secrets":[{"secret":"BANK_TOKEN","header":"a"},{"secret":"BANK_TOKEN","header":"A"}]}`, abi.EgressDenied, "twice"},
		{"compressed", `{"url":"https://api.pay.example/","headers":{"accept-encoding":"gzip"},` + withToken + `}`, abi.EgressDenied, "Accept-Encoding"},
		{"in pieces", `{"url":"https://api.pay.example/","headers":{"range":"bytes=0-3"},` + withToken + `}`, abi.EgressDenied, "Range"},
		{"as a piece", `{"url":"https://api.pay.example/",` + use("BANK_TOKEN", "Range", "bytes=") + `}`, abi.EgressDenied, "Range"},
		{"many", `{"url":"https://api.pay.example/","secrets":[` + strings.TrimSuffix(strings.Repeat(`{"secret":"BANK_TOKEN","header":"a"},`, maxSecretsUsed+1), ",") + `]}`, abi.EgressDenied, "exceed"},
	} {
		call := bank(t, n, "http GET http://plain.pay.example/*", "http GET pay.example/*")
		out, receipt := ask(t, m, call, "http", c.request, "log", `{"message":"goes on"}`)
		if code := out[0].code(t); code != c.code || out[1].Error {
			t.Errorf("%s: %s %s, want %s", c.name, code, out[0].Text, c.code)
		}
		if got := strings.Join(receipt.Denied, "; "); c.code == abi.CapabilityDenied && got != c.need || !strings.Contains(got+out[0].Text, c.need) {
			t.Errorf("%s: denied %q, reply %s, want %q", c.name, got, out[0].Text, c.need)
		}
		if slices.ContainsFunc(receipt.Used, func(s string) bool { return strings.HasPrefix(s, "secret") }) {
			t.Errorf("%s: used %q", c.name, receipt.Used)
		}
	}
	// A name that is not granted and one that does not exist read the same.
	out, _ := ask(t, m, bank(t, n), "http", `{"url":"https://api.pay.example/",`+use("OTHER", "X", "")+`}`, "http", `{"url":"https://api.pay.example/",`+use("NIGHT", "X", "")+`}`)
	if a, b := out[0].Text, strings.ReplaceAll(out[1].Text, "NIGHT", "OTHER"); a != b {
		t.Errorf("a secret that exists: %s\none that does not: %s", a, b)
	}
	for name, c := range map[string]*Call{
		"without secrets": {Access: Access{Egress: n.egress()}},
		"in a guard":      {Kind: abi.KindGuard, Access: bank(t, n).Access, Limits: Limits{Wall: toolLimits.Wall}},
	} {
		c.Grants = bank(t, n).Grants
		if out, _ := ask(t, m, c, "http", `{"url":"https://api.pay.example/",`+withToken+`}`); out[0].code(t) != abi.CapabilityDenied {
			t.Errorf("%s: %+v", name, out[0])
		}
	}
	if len(n.dialled) != 0 {
		t.Errorf("dialled %v", n.dialled)
	}
}

// A secret stays within the origin that it was sent to.
func TestSecretRedirected(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		to := r.URL.Query().Get("to")
		if to == "" {
			fmt.Fprintf(w, "%s auth=%t agent=%t", r.Host, r.Header.Get("Authorization") != "", strings.Contains(r.UserAgent(), bankToken))
			return
		}
		w.Header().Set("Location", strings.ReplaceAll(to, "TOKEN", url.QueryEscape(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))))
		w.WriteHeader(307)
	})
	m := loadGo(t)
	const both = `"secrets":[{"secret":"BANK_TOKEN","header":"Authorization","prefix":"Bearer "},{"secret":"BANK_TOKEN","header":"User-Agent"}]`
	back := url.QueryEscape("https://api.pay.example/end")
	for _, c := range []struct{ to, want string }{
		{"/end", "api.pay.example auth=true agent=true"},
		{"https://API.pay.example:443/end", "api.pay.example auth=true agent=true"},
		{"https://other.pay.example/end", "other.pay.example auth=false agent=false"}, // though it is granted there, too
		{"https://api.pay.example:8443/end", "api.pay.example:8443 auth=false agent=false"},
		{"https://evil.example/end", "evil.example auth=false agent=false"},
		{"https://evil.example/r?to=" + back, "api.pay.example auth=false agent=false"},
		{"https://evil.example/TOKEN", "egress_denied"},
		{"/end?t=TOKEN", "egress_denied"},
	} {
		call := bank(t, n, "http GET api.pay.example:8443/*")
		var traced []HostCall
		call.Trace = func(h HostCall) { traced = append(traced, h) }
		out, receipt := ask(t, m, call, "http", `{"url":"https://api.pay.example/r?to=`+url.QueryEscape(c.to)+`",`+both+`}`)
		got := out[0].Text
		if code := out[0].code(t); code != "" {
			got = string(code)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.to, got, c.want)
		}
		if all := fmt.Sprintf("%s %+v %+v", out[0].Text, traced, receipt); strings.Contains(all, bankToken) || strings.Contains(all, url.QueryEscape(bankToken)) {
			t.Errorf("%s: the secret is in %s", c.to, all)
		}
	}
}

// A private address, which needs a grant of its own, may be reached in the open.
func TestSecretToAPrivateAddress(t *testing.T) {
	n := newInternet(t, nil)
	n.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Key")) }))
	t.Cleanup(n.server.Close)
	c := bank(t, n, "http GET private http://127.0.0.1:8080/*", "secret use BANK_TOKEN at 127.0.0.1")
	out, _ := ask(t, loadGo(t), c, "http", `{"url":"http://127.0.0.1:8080/","secrets":[{"secret":"BANK_TOKEN","header":"X-Key"}]}`)
	if out[0].Text != "[secret BANK_TOKEN]" {
		t.Errorf("reply %+v", out[0])
	}
}

// Answers that no search could read are refused.
func TestSecretInAnEncodedAnswer(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		for _, as := range r.URL.Query()["as"] {
			w.Header().Add("Content-Encoding", as)
		}
		io.WriteString(w, "xyz")
	})
	const at, plain = `{"url":"https://api.pay.example/`, `{"url":"https://api.pay.example/"`
	for _, c := range []struct {
		request string
		want    abi.Code // with secrets in the app; without any it succeeds
	}{
		{at + `?as=br"}`, abi.EgressDenied}, {at + `?as=identity"}`, ""}, {at + `?as=identity&as=br"}`, abi.EgressDenied}, {at + `?as=Identity"}`, ""},
		{plain + `,"headers":{"accept-encoding":"gzip"}}`, abi.EgressDenied},
		{plain + `,"headers":{"range":"bytes=0-3"}}`, abi.EgressDenied},
		{plain + `,"headers":{"if-range":"x"}}`, abi.EgressDenied},
	} {
		withSecret := strings.TrimSuffix(c.request, "}") + "," + withToken + "}"
		out, _ := ask(t, loadGo(t), bank(t, n), "http", c.request, "http", withSecret)
		for i, what := range []string{"naming none", "naming one"} {
			if code := out[i].code(t); code != c.want {
				t.Errorf("%s, %s: %q, want %q", c.request, what, code, c.want)
			}
		}
		for _, none := range []*Secrets{nil, secrets(t, nil)} {
			call := bank(t, n)
			call.Access.Secrets = none
			if out, _ = ask(t, loadGo(t), call, "http", c.request); out[0].Text != "xyz" {
				t.Errorf("%s in an app without secrets: %+v", c.request, out[0])
			}
		}
	}
}

// An answer is searched for every secret, also in a call that may use none; a name
// longer than its value does not lift the bound of an answer.
func TestSecretInAnyAnswer(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "a "+bankToken+" and another value") })
	c := bank(t, n)
	c.Grants = grants(t, "http GET a.example/*")
	out, _ := ask(t, loadGo(t), c, "http", `{"url":"https://a.example/"}`)
	if out[0].Text != "a [secret BANK_TOKEN] and [secret OTHER]" {
		t.Errorf("reply %q", out[0].Text)
	}
	c.Access.Secrets = secrets(t, map[string]string{strings.Repeat("N", 64): "a " + bankToken[:8]})
	c.Limits.HTTPBytes = 60
	if out, _ = ask(t, loadGo(t), c, "http", `{"url":"https://a.example/"}`); out[0].code(t) != abi.EgressLimit {
		t.Errorf("reply %+v", out[0])
	}
}

// What a guest logs is searched as well.
func TestSecretInLogs(t *testing.T) {
	w := newWorld()
	c := &Call{Grants: grants(t, "log"), Access: w.access()}
	c.Access.Secrets = secrets(t, map[string]string{"KEY": "standard output"})
	message, _ := abi.Marshal(abi.LogRequest{Message: "is it standard output?"})
	ask(t, loadGo(t), c, "log", string(message))
	c.Export, c.Input = "call", []byte(`{"do":"print"}`)
	var done bool
	succeeds(t, loadGo(t), c, &done)
	if got := strings.Join(w.lines, "; "); strings.Contains(got, "standard output") || !strings.HasPrefix(got, "info is it [secret KEY]?; info [secret KEY]") {
		t.Errorf("log %q", got)
	}
}

func TestNewSecrets(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"SHORT":                 {"1234567", "secret SHORT: value of 7 bytes: want 8 to 8192"},
		"LONG":                  {strings.Repeat("x", maxSecretBytes+1), "secret LONG: value of 8193 bytes"},
		"EMPTY":                 {"", "secret EMPTY: value of 0 bytes"},
		"LINE":                  {"1234\n5678", "secret LINE: value has control characters"},
		"BLANK":                 {"12345678 ", "secret BLANK: value has control characters, or begins or ends with a blank"},
		"a b":                   {"12345678", `secret "a b": want a name`},
		"*":                     {"12345678", `secret "*": want a name`},
		"":                      {"12345678", `secret "": want a name`},
		strings.Repeat("N", 65): {"12345678", "want a name of 1 to 64"},
	} {
		_, err := NewSecrets(map[string]string{name: c.value})
		if err == nil || !strings.Contains(err.Error(), c.want) || c.value != "" && strings.Contains(err.Error(), c.value) {
			t.Errorf("%.20s: error %v, want %s", name, err, c.want)
		}
	}
	many := map[string]string{}
	for i := range maxSecrets + 1 {
		many[fmt.Sprint("S", i)] = "12345678"
	}
	if _, err := NewSecrets(many); err == nil {
		t.Error("more secrets than there may be")
	}
	s := secrets(t, map[string]string{"B": bankToken, "A": "12345678"})
	if got := fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s, Access{Secrets: s}.Secrets); strings.Contains(got, "12345678") || !strings.HasPrefix(got, "secrets[A B] ") {
		t.Errorf("prints as %s", got)
	}
	if got := (*Secrets)(nil).String(); got != "secrets[]" {
		t.Errorf("nil prints as %s", got)
	}
}

// FuzzScrub: wherever a secret stands, in whatever spelling servers echo, it does
// not get through; and text that holds none stays as it is.
func FuzzScrub(f *testing.F) {
	var names []string
	for name := range echoes {
		names = append(names, name)
	}
	slices.Sort(names)
	f.Add("you sent ", bankToken, ".", byte(0))
	f.Add("", "12345678", "12345678", byte(7))
	f.Fuzz(func(t *testing.T, before, value, after string, how byte) {
		s, err := NewSecrets(map[string]string{"S": value})
		if err != nil || strings.ContainsAny(value, "[]") {
			return
		}
		encoded := echoes[names[int(how)%len(names)]](value)
		in := before + encoded + after
		out, found := s.scrub(in)
		if strings.Contains(out, value) || len(found) != 1 {
			t.Fatalf("%q: %q, found %q", in, out, found)
		}
		if again, found := s.scrub(out); again != out && !strings.Contains(value, "secret S") {
			t.Fatalf("%q: %q holds %q still: %q", in, out, found, again)
		}
		if plain, found := s.scrub(strings.Repeat("\x00", len(value))); found != nil || strings.Trim(plain, "\x00") != "" {
			t.Fatalf("a text without it: %q, %q", plain, found)
		}
	})
}

func TestSecretsFind(t *testing.T) {
	s, err := NewSecrets(map[string]string{"BANK": "s3cret/Value&1", "MAIL": "other-secret"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ document, want string }{
		{`{"a":{"b~/":["x","is s3cret/Value&1."]}}`, "[{BANK /a/b~0~1/1 false}]"},
		{`{"other-secret":{"n":1}}`, "[{MAIL /other-secret true}]"},
		{`{"q":"s3cret%2FValue%261 other-secret"}`, "[{BANK /q false} {MAIL /q false}]"},
		{`{"q":"s3cret\/Value\u00261"}`, "[{BANK /q false}]"},
		{`no JSON other-secret`, "[{MAIL  false}]"},
		{`{"q":"[secret BANK]"}`, "[]"},
		{`{"q":"s3cret"}`, "[]"},
	} {
		if got := fmt.Sprint(s.Find([]byte(c.document))); got != c.want {
			t.Errorf("%s: %s, want %s", c.document, got, c.want)
		}
	}
	if got := (*Secrets)(nil).Find([]byte(`{}`)); got != nil {
		t.Errorf("no secrets: %v", got)
	}
	many := `["other-secret"` + strings.Repeat(`,"other-secret"`, 99) + `]`
	if got := s.Find([]byte(many)); len(got) != abi.MaxSecretHits {
		t.Errorf("%d hits", len(got))
	}
}
