package host

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// internet is a network whose names all lead to one test server.
type internet struct {
	server *httptest.Server
	names  map[string][]string // addresses of a name; default a public one

	mu      sync.Mutex
	lookups []string
	dialled []string
	seen    []*http.Request
}

func newInternet(t testing.TB, handler http.HandlerFunc) *internet {
	n := &internet{names: map[string][]string{}}
	n.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.seen = append(n.seen, r)
		n.mu.Unlock()
		handler(w, r)
	}))
	n.server.Config.ErrorLog = nil
	t.Cleanup(n.server.Close)
	return n
}

func (n *internet) egress() *Egress {
	return &Egress{wire: &network{
		lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.lookups = append(n.lookups, host)
			list, ok := n.names[host]
			if !ok {
				list = []string{"93.184.216.34"}
			}
			var addrs []netip.Addr
			for _, s := range list {
				addrs = append(addrs, netip.MustParseAddr(s))
			}
			return addrs, nil
		},
		dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			n.mu.Lock()
			n.dialled = append(n.dialled, address)
			n.mu.Unlock()
			if strings.HasPrefix(address, "198.41.0.4:") { // an address that never answers
				return nil, errors.New("connection refused")
			}
			return (&net.Dialer{}).DialContext(ctx, network, n.server.Listener.Addr().String())
		},
		tls: &tls.Config{InsecureSkipVerify: true},
	}}
}

func fetch(t testing.TB, m *Module, n *internet, lines []string, limits Limits, requests ...string) ([]guestReply, Receipt) {
	t.Helper()
	var calls []string
	for _, r := range requests {
		calls = append(calls, "http", r)
	}
	return ask(t, m, &Call{Grants: grants(t, lines...), Limits: limits, Access: Access{Egress: n.egress()}}, calls...)
}

func TestEgress(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.WriteHeader(201)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.Header.Get("X-Mine"), body)
	})
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	n.names["api.example.com"] = []string{"198.41.0.4", "93.184.216.34"}
	var traced []HostCall
	c := &Call{Grants: grants(t, "http POST api.example.com/v1/*"), Access: Access{Egress: n.egress()}, Trace: func(h HostCall) { traced = append(traced, h) }}
	out, receipt := ask(t, loadGo(t), c, "http", "{\"method\":\"post\",\"url\":\"https://API.example.com:443/v1/x?q=1#top\",\"headers\":{\"x-mine\":\"yes\"}}\x00the body")
	if out[0].Text != "POST api.example.com yes the body" {
		t.Fatalf("reply %+v", out[0])
	}
	var head abi.HTTPReply
	if err := abi.Decode([]byte(out[0].Head), &head); err != nil || head.Status != 201 || head.Headers["x-two"] != "a, b" {
		t.Errorf("head %s, error %v", out[0].Head, err)
	}
	if got := fmt.Sprint(n.dialled, n.lookups); got != "[198.41.0.4:443 93.184.216.34:443] [api.example.com]" {
		t.Errorf("dialled and looked up %s", got)
	}
	if got := fmt.Sprint(receipt.Used, receipt.Denied); got != "[http POST api.example.com/v1/x] []" {
		t.Errorf("used and denied %s", got)
	}
	if len(traced) != 1 || traced[0].Status != 201 || traced[0].Bytes != int64(len(out[0].Text)) || traced[0].Recorded ||
		traced[0].Need != "http POST api.example.com/v1/x" || !strings.HasPrefix(traced[0].Detail, "POST https://API.example.com") {
		t.Errorf("trace %+v", traced)
	}
}

// TestEgressDenied: none of these reaches a server.
func TestEgressDenied(t *testing.T) {
	n := newInternet(t, func(http.ResponseWriter, *http.Request) {})
	n.names["inside.example.com"] = []string{"10.0.0.1"}
	n.names["both.example.com"] = []string{"93.184.216.34", "127.0.0.1"}
	n.names["mapped.example.com"] = []string{"::ffff:127.0.0.1"}
	n.names["meta.example.com"] = []string{"169.254.169.254"}
	n.names["many.example.com"] = slices.Repeat([]string{"93.184.216.34"}, maxAddresses+1)
	n.names["none.example.com"] = []string{}
	lines := []string{"http GET,POST *.example.com/*", "http GET private meta.example.com/*", "http GET http://plain.example.com/*"}
	tests := []struct {
		request string
		code    abi.Code
		need    string // in the receipt's list of what was denied
	}{
		{`{"url":"https://other.org/"}`, abi.CapabilityDenied, "http GET other.org/"},
		{`{"url":"https://example.com/"}`, abi.CapabilityDenied, "http GET example.com/"},
		{`{"url":"https://evilexample.com/"}`, abi.CapabilityDenied, "http GET evilexample.com/"},
		{`{"url":"https://api.example.com.evil.org/"}`, abi.CapabilityDenied, "http GET api.example.com.evil.org/"},
		{`{"url":"https://a.b.example.com/"}`, abi.CapabilityDenied, "http GET a.b.example.com/"},
		{`{"url":"http://api.example.com/"}`, abi.CapabilityDenied, "http GET http://api.example.com/"},
		{`{"url":"https://api.example.com:8443/"}`, abi.CapabilityDenied, "http GET api.example.com:8443/"},
		{`{"url":"https://api.example.com/","method":"DELETE"}`, abi.CapabilityDenied, "http DELETE api.example.com/"},
		{`{"url":"https://api.example.com/","secrets":[{"secret":"KEY","header":"Authorization"}]}`, abi.CapabilityDenied, "secret use KEY at api.example.com"},
		{`{"url":"https://inside.example.com/"}`, abi.EgressDenied, "http GET private inside.example.com/"},
		{`{"url":"https://both.example.com/"}`, abi.EgressDenied, "http GET private both.example.com/"},
		{`{"url":"https://mapped.example.com/"}`, abi.EgressDenied, "http GET private mapped.example.com/"},
		{`{"url":"https://meta.example.com/"}`, abi.EgressDenied, "http GET meta.example.com/"},
		{`{"url":"https://many.example.com/"}`, abi.EgressDenied, ""},
		{`{"url":"https://none.example.com/"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","method":"CONNECT"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","method":"GET /x HTTP/1.1\r\n"}`, abi.EgressDenied, ""},
		{`{"url":"file:///etc/passwd"}`, abi.EgressDenied, ""},
		{`{"url":"gopher://api.example.com/"}`, abi.EgressDenied, ""},
		{`{"url":"unix:///run/docker.sock"}`, abi.EgressDenied, ""},
		{`{"url":"https://evil.org#@api.example.com/"}`, abi.CapabilityDenied, "http GET evil.org/"},
		{`{"url":"//api.example.com/"}`, abi.EgressDenied, ""},
		{`{"url":"https:api.example.com"}`, abi.EgressDenied, ""},
		{`{"url":"https://user@api.example.com/"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com\\@evil.org/"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/a b"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/\t"}`, abi.EgressDenied, ""},
		{`{"url":"https://\u2460.example.com/"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/../secret"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/a/%2e%2E/secret"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/a/..%2fsecret"}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com:99999/"}`, abi.EgressDenied, ""},
		{`{"url":"https://2130706433/"}`, abi.EgressDenied, ""},
		{`{"url":"https://0x7f.1/"}`, abi.EgressDenied, ""},
		{`{"url":"https://0177.0.0.1/"}`, abi.EgressDenied, ""},
		{`{"url":"https://127.1/"}`, abi.EgressDenied, ""},
		{`{"url":"https://[::1%25eth0]/"}`, abi.EgressDenied, ""},
		{`{"url":"https://127.0.0.1/"}`, abi.CapabilityDenied, "http GET private 127.0.0.1/"},
		{`{"url":"https://api.example.com/","headers":{"X":"a\r\nHost: evil"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"X":"a\u0000"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"X Y":"a"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"host":"evil.org"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"Transfer-Encoding":"chunked"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"content-length":"3"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"Proxy-Authorization":"x"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"X":"a","x":"b"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/","headers":{"X":"` + strings.Repeat("a", maxRequestHeaderBytes) + `"}}`, abi.EgressDenied, ""},
		{`{"url":"https://api.example.com/` + strings.Repeat("a", maxURLBytes) + `"}`, abi.EgressDenied, ""},
		{`{"url":7}`, abi.ArgsInvalid, ""},
	}
	m := loadGo(t)
	for _, test := range tests {
		out, receipt := fetch(t, m, n, lines, Limits{}, test.request)
		if code := out[0].code(t); code != test.code {
			t.Errorf("%.80s: %s %.200s, want %s", test.request, code, out[0].Text, test.code)
		}
		got := strings.Join(receipt.Denied, "; ")
		if test.code == abi.EgressDenied && test.need == "" { // no grant could allow it: the reason stands for the need
			if len(receipt.Denied) != 1 || !strings.HasPrefix(got, "http: ") {
				t.Errorf("%.80s: denied %q: want the reason", test.request, got)
			}
			got = ""
		}
		if got != test.need || receipt.Used != nil {
			t.Errorf("%.80s: denied %q, used %q, want %q", test.request, got, receipt.Used, test.need)
		}
	}
	if len(n.dialled) != 0 {
		t.Errorf("dialled %v", n.dialled)
	}
}

func TestEgressPrivate(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") })
	n.names["inside.example.com"] = []string{"10.0.0.1"}
	out, receipt := fetch(t, loadGo(t), n, []string{"http GET private inside.example.com/*"}, Limits{}, `{"url":"https://inside.example.com/"}`)
	if out[0].Text != "inside" || fmt.Sprint(n.dialled) != "[10.0.0.1:443]" || fmt.Sprint(receipt.Used) != "[http GET private inside.example.com/]" {
		t.Errorf("reply %+v, dialled %v, used %q", out[0], n.dialled, receipt.Used)
	}
}

// A name that changes its address between two requests is judged at each, and the
// address that was judged is the one that is dialled.
func TestEgressRebinding(t *testing.T) {
	n := newInternet(t, nil)
	n.names["turn.example.com"] = []string{"93.184.216.34"}
	n.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.names["turn.example.com"] = []string{"127.0.0.1"}
		n.mu.Unlock()
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	out, receipt := fetch(t, loadGo(t), n, []string{"http GET turn.example.com/*"}, Limits{}, `{"url":"https://turn.example.com/"}`)
	if code := out[0].code(t); code != abi.EgressDenied {
		t.Errorf("%q %s, want %s", code, out[0].Text, abi.EgressDenied)
	}
	if got := fmt.Sprint(n.dialled, n.lookups, receipt.Used, receipt.Denied); got != "[93.184.216.34:443] [turn.example.com turn.example.com] [http GET turn.example.com/] [http GET private turn.example.com/again]" {
		t.Errorf("dialled, looked up, used and denied %s", got)
	}
}

// A server that offers HTTP/2 is spoken to in HTTP/1.1.
func TestEgressSpeaksHTTP1(t *testing.T) {
	n := newInternet(t, nil)
	n.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	n.server.EnableHTTP2 = true
	n.server.StartTLS()
	t.Cleanup(n.server.Close)
	out, _ := fetch(t, loadGo(t), n, []string{"http GET a.example/*"}, Limits{}, `{"url":"https://a.example/"}`)
	if out[0].Text != "HTTP/1.1" {
		t.Errorf("reply %+v", out[0])
	}
}

func TestEgressRedirects(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		to, status := r.URL.Query().Get("to"), 302
		fmt.Sscan(r.URL.Query().Get("status"), &status)
		if to == "" {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s%s auth=%s cookie=%s token=%s accept=%s body=%s", r.Method, r.Host, r.URL.Path, r.Header.Get("Authorization"),
				r.Header.Get("Cookie"), r.Header.Get("X-Token"), r.Header.Get("Accept"), body)
			return
		}
		if to == "loop" {
			to = r.URL.String()
		}
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	})
	n.names["meta.ok.example"] = []string{"169.254.169.254"}
	lines := []string{"http GET,POST a.example/*", "http GET b.example/*", "http GET *.ok.example/*"}
	headers := `"headers":{"Authorization":"secret","Cookie":"c","X-Token":"t","Accept":"x/y"}`
	to := func(s string) string { return url.QueryEscape(s) }
	tests := []struct {
		request string
		want    string // the answer, or a code
	}{
		{`{"url":"https://a.example/r?to=/end",` + headers + `}`, "GET a.example/end auth=secret cookie=c token=t accept=x/y body="},
		{`{"url":"https://a.example/r?to=` + to("https://b.example/end") + `",` + headers + `}`, "GET b.example/end auth= cookie= token= accept=x/y body="},
		{"{\"method\":\"POST\",\"url\":\"https://a.example/r?to=/end\"}\x00data", "GET a.example/end auth= cookie= token= accept= body="},
		{"{\"method\":\"POST\",\"url\":\"https://a.example/r?status=307&to=/end\"}\x00data", "POST a.example/end auth= cookie= token= accept= body=data"},
		{"{\"method\":\"POST\",\"url\":\"https://a.example/r?status=307&to=" + to("https://b.example/end") + "\"}\x00data", "egress_denied"},
		{`{"url":"https://a.example/r?to=` + to("https://c.example/end") + `"}`, "egress_denied"},
		{`{"url":"https://a.example/r?to=` + to("http://a.example/end") + `"}`, "egress_denied"},
		{`{"url":"https://a.example/r?to=` + to("https://meta.ok.example/latest/meta-data") + `"}`, "egress_denied"},
		{`{"url":"https://a.example/r?to=` + to("file:///etc/passwd") + `"}`, "egress_denied"},
		{`{"url":"https://a.example/r?to=` + to("https://u:p@b.example/") + `"}`, "egress_denied"},
		{`{"url":"https://a.example/r?to=loop"}`, "egress_limit"},
	}
	m := loadGo(t)
	for _, test := range tests {
		out, _ := fetch(t, m, n, lines, Limits{}, test.request)
		got := out[0].Text
		if code := out[0].code(t); code != "" {
			got = string(code)
		}
		if got != test.want {
			t.Errorf("%.120s:\n got %s\nwant %s", test.request, got, test.want)
		}
	}
	n.seen = nil
	fetch(t, m, n, lines, Limits{}, `{"url":"https://a.example/r?to=loop"}`)
	if len(n.seen) != maxRedirects+1 {
		t.Errorf("%d requests in a loop, want %d", len(n.seen), maxRedirects+1)
	}
}

func TestEgressLimits(t *testing.T) {
	stop := make(chan struct{})
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb":
			if r.Header.Get("Accept-Encoding") != "gzip" {
				w.WriteHeader(400)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			var buf bytes.Buffer
			z := gzip.NewWriter(&buf)
			z.Write(make([]byte, 1<<20))
			z.Close()
			w.Write(buf.Bytes())
		case "/headers":
			w.Header().Set("X-Long", strings.Repeat("a", 2*maxResponseHeaderBytes))
		case "/drip":
			for {
				if _, err := w.Write([]byte(".")); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-stop:
					return
				case <-r.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
		case "/exact":
			w.Write(make([]byte, 1000))
		}
	})
	defer close(stop)
	m := loadGo(t)
	lines := []string{"http GET,POST a.example/*"}
	limits := Limits{HTTPBytes: 1000, HTTPRequests: 5}
	out, _ := fetch(t, m, n, lines, limits, `{"url":"https://a.example/exact"}`, `{"url":"https://a.example/bomb"}`, `{"url":"https://a.example/headers"}`,
		"{\"url\":\"https://a.example/\",\"method\":\"POST\"}\x00"+strings.Repeat("x", 1001),
		`{"url":"https://a.example/"}`, `{"url":"https://a.example/"}`, `{"url":"https://a.example/"}`)
	want := []abi.Code{"", abi.EgressLimit, abi.EgressLimit, abi.EgressLimit, "", "", abi.EgressLimit}
	for i, r := range out {
		if got := r.code(t); got != want[i] {
			t.Errorf("request %d: %q %.100s, want %q", i, got, r.Text, want[i])
		}
	}
	c := &Call{Export: "call", Input: []byte(`{"do":"calls","calls":[{"name":"http","request":{"url":"https://a.example/drip"}}]}`),
		Grants: grants(t, lines...), Limits: Limits{Wall: 100 * time.Millisecond}, Access: Access{Egress: n.egress()}}
	from := time.Now()
	fails(t, m, c, abi.GuestTimeout)
	if took := time.Since(from); took > 2*time.Second {
		t.Errorf("a dripping answer held the call for %v", took)
	}
}

func TestEgressKeepsNoConnection(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "id", Value: "1"})
		fmt.Fprint(w, r.Header.Get("Cookie"))
	})
	out, _ := fetch(t, loadGo(t), n, []string{"http GET a.example/*"}, Limits{}, `{"url":"https://a.example/"}`, `{"url":"https://a.example/"}`)
	if !n.seen[0].Close || !n.seen[1].Close {
		t.Error("the server may keep a connection")
	}
	if len(n.dialled) != 2 || out[1].Text != "" {
		t.Errorf("%d connections for 2 requests, cookie %q", len(n.dialled), out[1].Text)
	}
}

func TestExtismHTTP(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		io.WriteString(w, "abc")
	})
	// Answers the status and the length of the body.
	b := &builder{}
	fn := map[string]int{}
	for _, name := range []string{"alloc", "store_u8", "http_request", "http_status_code", "length"} {
		fn[name] = b.use(abi.ImportExtism, name)
	}
	fn["output_set"] = b.use(abi.ImportHost, "output_set")
	b.pages(1)
	var code []byte
	request := `{"url":"https://a.example/x","headers":{"A":"b"}}`
	code = append(code, join(i64(int64(len(request))), callFn(fn["alloc"]), setLocal(0))...)
	for i, c := range []byte(request) {
		code = append(code, join(get(0), i64(int64(i)), []byte{0x7c}, i32(int64(c)), callFn(fn["store_u8"]))...)
	}
	code = append(code, join(i32(8), get(0), i64(0), callFn(fn["http_request"]), callFn(fn["length"]), []byte{0x37, 3, 0},
		i32(0), callFn(fn["http_status_code"]), []byte{0x36, 2, 0}, i32(0), i32(16), callFn(fn["output_set"]))...)
	b.fn("call", ":", 1, code)
	m := load(t, b.bytes())
	c := &Call{Export: "call", Grants: grants(t, "http GET a.example/*"), Access: Access{Egress: n.egress()}}
	reply, err := m.Call(t.Context(), c)
	if err != nil || reply.Output[0] != 404&0xff || reply.Output[1] != 404>>8 || reply.Output[8] != 3 {
		t.Fatalf("reply %+v, error %v", reply, err)
	}
	if got := n.seen[0].Header.Get("A"); got != "b" {
		t.Errorf("header %q", got)
	}
	c.Grants = grants(t)
	reply, err = m.Call(t.Context(), c)
	if err != nil || !bytes.Equal(reply.Output, make([]byte, 16)) || fmt.Sprint(reply.Receipt.Denied) != "[http GET a.example/x]" {
		t.Errorf("refused: reply %+v, error %v", reply, err)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"https://api.example.com/v1/x?q=1", "http://127.0.0.1:8080/", "https://[::1]:1/%2e", "https://a.example/..;/", "https://a@b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := parseURL(raw)
		if err != nil {
			return
		}
		again, err := parseURL(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("%q reads as %q and then as %v, error %v", raw, u, again, err)
		}
		if u.User != nil || u.Hostname() == "" || u.Hostname() != strings.ToLower(u.Hostname()) || strings.HasSuffix(u.Hostname(), ".") {
			t.Errorf("%q reads as %q", raw, u)
		}
	})
}
