package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func reply(s string) func(string, []byte, []byte) ([]byte, error) {
	return func(string, []byte, []byte) ([]byte, error) { return []byte(s), nil }
}

// TestHostCalls checks what each method asks of the host, and that a refusal is
// an error that matches ErrDenied.
func TestHostCalls(t *testing.T) {
	var asked []string
	for _, c := range []struct {
		name string
		call func(c *Call) error
		want string
	}{
		{"Set", func(c *Call) error { return c.Set("user:a", map[string]any{"x": json.Number("1.0")}) }, `state_set {"values":{"user:a":{"x":1.0}}}`},
		{"Get", func(c *Call) error { _, err := c.Get("user:a", new(int)); return err }, `state_get {"key":"user:a"}`},
		{"Artifact", func(c *Call) error { _, err := c.Artifact("a.csv"); return err }, `artifact_read {"name":"a.csv"}`},
		{"Artifacts", func(c *Call) error { _, err := c.Artifacts(); return err }, `artifact_list {}`},
		{"SaveArtifact", func(c *Call) error { _, err := c.SaveArtifact("a.csv", "text/csv", []byte("x,y")); return err }, `artifact_save {"name":"a.csv","type":"text/csv"} x,y`},
		{"KV.Get", func(c *Call) error { _, err := c.KV().Get("a", new(int)); return err }, `kv_get {"key":"a"}`},
		{"KV.Set", func(c *Call) error { return c.KV().Set("a", json.Number("1.0"), time.Second) }, `kv_set {"key":"a","value":1.0,"ttl_ms":1000}`},
		{"KV.Set for less than a millisecond", func(c *Call) error { return c.KV().Set("a", 1, 1) }, `kv_set {"key":"a","value":1,"ttl_ms":1}`},
		{"KV.Delete", func(c *Call) error { return c.KV().Delete("a") }, `kv_delete {"key":"a"}`},
		{"KV.Add", func(c *Call) error { _, _, err := c.KV().Add("a", -1, 5, 0); return err }, `kv_add {"key":"a","n":-1,"most":5}`},
		{"KV of a guard", func(c *Call) error { _, _, err := (&Question{wall: c.wall}).KV().Add("a", 1, 5, 0); return err }, `kv_add {"key":"a","n":1,"most":5}`},
		{"SearchMemory", func(c *Call) error { _, err := c.SearchMemory("q"); return err }, `memory_search {"query":"q"}`},
		{"AskConfirmation", func(c *Call) error { return c.AskConfirmation("Pay?", map[string]int{"n": 1}) }, `confirm {"hint":"Pay?","payload":{"n":1}}`},
		{"AskConfirmation without payload", func(c *Call) error { return c.AskConfirmation("Pay?", nil) }, `confirm {"hint":"Pay?"}`},
		{"Transfer", func(c *Call) error { return c.Transfer("billing") }, `transfer {"agent":"billing"}`},
		{"Escalate", func(c *Call) error { return c.Escalate() }, `escalate {}`},
		{"SkipSummary", func(c *Call) error { return c.SkipSummary() }, `skip_summary {}`},
		{"HTTP", func(c *Call) error {
			_, err := c.HTTP(Request{Method: "PUT", URL: "https://a.example/", Header: map[string]string{"A": "b"}, Body: []byte("body"), Secrets: []UseSecret{{Secret: "S", Header: "Authorization", Prefix: "Bearer "}}})
			return err
		}, `http {"method":"PUT","url":"https://a.example/","headers":{"A":"b"},"secrets":[{"secret":"S","header":"Authorization","prefix":"Bearer "}]} body`},
		{"HTTP with JSON", func(c *Call) error {
			_, err := c.HTTP(Request{Method: "POST", URL: "https://a.example/", JSON: map[string]string{"a": "<b>"}})
			return err
		}, `http {"method":"POST","url":"https://a.example/","headers":{"Content-Type":"application/json"}} {"a":"<b>"}`},
		{"HTTP with JSON of another type", func(c *Call) error {
			_, err := c.HTTP(Request{URL: "https://a.example/", JSON: 1, Header: map[string]string{"content-type": "application/x"}})
			return err
		}, `http {"url":"https://a.example/","headers":{"content-type":"application/x"}} 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &fakeWall{answer: denied}
			err := c.call(&Call{wall: w})
			if !errors.Is(err, ErrDenied) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v is not ErrDenied alone", err)
			}
			if len(w.asked) != 1 || w.asked[0] != c.want {
				t.Errorf("asked %q\nwant  %q", w.asked, c.want)
			}
			asked = append(asked, strings.Fields(c.want)[0])
		})
	}
	for _, f := range abi.HostFunctions()[4:] { // after bulk transfer
		if f != "emit" && f != "log" && !slices.Contains(asked, f) {
			t.Errorf("%s is asked by no method", f)
		}
	}
}

func TestHostCallsThatAreNotMade(t *testing.T) {
	w := &fakeWall{}
	c := &Call{wall: w}
	for name, err := range map[string]error{
		"state":    c.Set("user:a", math.NaN()),
		"confirm":  c.AskConfirmation("h", math.NaN()),
		"body":     second(c.HTTP(Request{JSON: math.NaN()})),
		"not both": second(c.HTTP(Request{JSON: 1, Body: []byte("x")})),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if len(w.asked) > 0 {
		t.Errorf("asked %q", w.asked)
	}
}

func second[T any](_ T, err error) error { return err }

func TestHostErrors(t *testing.T) {
	for _, c := range []struct {
		code           abi.Code
		denied, absent bool
	}{
		{abi.CapabilityDenied, true, false}, {abi.EgressDenied, true, false}, {abi.NoRecordedAnswer, true, false},
		{abi.NotFound, false, true}, {abi.EgressLimit, false, false}, {abi.HostcallLimit, false, false},
	} {
		err := hostError("http", []byte(`{"code":"`+string(c.code)+`","message":"m"}`))
		if errors.Is(err, ErrDenied) != c.denied || errors.Is(err, fs.ErrNotExist) != c.absent {
			t.Errorf("%s: ErrDenied %v, ErrNotExist %v", c.code, errors.Is(err, ErrDenied), errors.Is(err, fs.ErrNotExist))
		}
		if e, ok := errors.AsType[*HostError](err); !ok || e.Code != c.code || e.Function != "http" || e.Error() != "http: "+string(c.code)+": m" {
			t.Errorf("%s: got %v", c.code, err)
		}
	}
	if err := hostError("http", []byte("x")); err == nil || !strings.Contains(err.Error(), "http: reply") {
		t.Errorf("error reply that is no JSON: %v", err)
	}
}

func TestGet(t *testing.T) {
	var got any
	for _, c := range []struct {
		reply string
		ok    bool
		want  any
		err   string
	}{
		{`{"found":true,"value":{"n":1.50}}`, true, map[string]any{"n": json.Number("1.50")}, ""},
		{`{"found":true,"value":null}`, true, nil, ""},
		{`{"found":false}`, false, nil, ""},
		{`x`, false, nil, "state_get: reply"},
	} {
		got = nil
		ok, err := (&Call{wall: &fakeWall{answer: reply(c.reply)}}).Get("user:a", &got)
		if ok != c.ok || !reflect.DeepEqual(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v %v, error %v", c.reply, ok, got, err)
		}
	}
	var n int
	if ok, err := (&Call{wall: &fakeWall{answer: reply(`{"found":true,"value":"x"}`)}}).Get("user:a", &n); !ok || err == nil || !strings.Contains(err.Error(), "state user:a") {
		t.Errorf("text into a number: %v, error %v", ok, err)
	}
}

func TestKV(t *testing.T) {
	kv := func(s string) KV { return (&Call{wall: &fakeWall{answer: reply(s)}}).KV() }
	var n int
	if found, err := kv(`{"found":true,"value":3}`).Get("a", &n); !found || err != nil || n != 3 {
		t.Errorf("Get: %v %d, %v", found, n, err)
	}
	if _, err := kv(`x`).Get("a", &n); err == nil || !strings.Contains(err.Error(), "kv_get: reply") {
		t.Errorf("Get: %v", err)
	}
	if count, added, err := kv(`{"added":true,"count":9007199254740991}`).Add("a", 1, abi.MaxCount, 0); count != abi.MaxCount || !added || err != nil {
		t.Errorf("Add: %d %v, %v", count, added, err)
	}
	if _, added, err := kv(`x`).Add("a", 1, 2, 0); added || err == nil {
		t.Errorf("Add: %v, %v", added, err)
	}
	if err := kv("").Set("a", math.NaN(), 0); err == nil {
		t.Error("Set of no number")
	}
	if _, _, err := (&Question{}).KV().Add("a", 1, 2, 0); err == nil || !strings.Contains(err.Error(), "no host") {
		t.Errorf("Add without a host: %v", err)
	}
}

func TestSearchMemory(t *testing.T) {
	c := &Call{wall: &fakeWall{answer: reply(`{"entries":[{"text":"a","author":"user"}]}`)}}
	if found, err := c.SearchMemory("q"); err != nil || len(found) != 1 || found[0].Text != "a" || found[0].Author != "user" {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := (&Call{wall: &fakeWall{answer: reply(`x`)}}).SearchMemory("q"); err == nil {
		t.Error("a reply that is no JSON")
	}
}

func TestLog(t *testing.T) {
	w := &fakeWall{answer: denied}
	(&Call{wall: w}).Log(LevelWarn, "%d of %d", 1, 2)
	if want := []string{`log {"level":"warn","message":"1 of 2"}`}; !slices.Equal(w.asked, want) {
		t.Errorf("asked %q, want %q", w.asked, want)
	}
}

func TestHTTPReply(t *testing.T) {
	head := func(n uint32, rest string) string { return string(binary.LittleEndian.AppendUint32(nil, n)) + rest }
	const doc = `{"status":404,"headers":{"content-type":"application/json"}}`
	c := &Call{wall: &fakeWall{answer: reply(head(uint32(len(doc)), doc+`{"a":1.0,"extra":2}`))}}
	res, err := c.HTTP(Request{URL: "https://a.example/"})
	if err != nil || res.Status != 404 || res.Header["content-type"] != "application/json" || string(res.Body) != `{"a":1.0,"extra":2}` {
		t.Fatalf("got %+v, error %v", res, err)
	}
	var body struct {
		A json.Number `json:"a"`
	}
	if err := res.JSON(&body); err != nil || body.A != "1.0" {
		t.Errorf("body %+v, error %v", body, err)
	}
	res.Body = []byte("<html>")
	if err := res.JSON(&body); err == nil || !strings.Contains(err.Error(), "http: body") {
		t.Errorf("body that is no JSON: error %v", err)
	}
	for _, bad := range []string{"", "abc", head(1, ""), head(0xffffffff, doc), head(2, "xx")} {
		if res, err := (&Call{wall: &fakeWall{answer: reply(bad)}}).HTTP(Request{}); err == nil {
			t.Errorf("reply %q: got %+v", bad, res)
		}
	}
}

func TestArtifact(t *testing.T) {
	content := strings.Repeat("0123456789", 20_000)
	read := func(_ string, request, _ []byte) ([]byte, error) {
		var r abi.ArtifactRead
		if err := json.Unmarshal(request, &r); err != nil || r.Name != "a.csv" {
			return nil, errors.New("bad request")
		}
		rest := content[min(r.Offset, int64(len(content))):]
		return []byte(rest[:min(len(rest), abi.MaxChunk)]), nil
	}
	w := &fakeWall{answer: read}
	f, err := (&Call{wall: w}).Artifact("a.csv")
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(f, []byte(content)); err != nil {
		t.Error(err)
	}
	if len(w.asked) != 5 { // 200 000 bytes in four parts, and the end
		t.Errorf("%d host calls for %d bytes, want 5", len(w.asked), len(content))
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || err != io.EOF || len(w.asked) != 5 {
		t.Errorf("after the end: %d bytes, error %v, %d host calls", n, err, len(w.asked))
	}

	// A part that is refused later is an error of Read.
	calls := 0
	f, err = (&Call{wall: &fakeWall{answer: func(fn string, request, body []byte) ([]byte, error) {
		if calls++; calls > 1 {
			return denied(fn, request, body)
		}
		return []byte("abc"), nil
	}}}).Artifact("a.csv")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); string(got) != "abc" || !errors.Is(err, ErrDenied) {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestArtifactReplies(t *testing.T) {
	c := &Call{wall: &fakeWall{answer: reply(`{"names":["a","b"]}`)}}
	if names, err := c.Artifacts(); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %v, error %v", names, err)
	}
	c = &Call{wall: &fakeWall{answer: reply(`{"version":3}`)}}
	if v, err := c.SaveArtifact("a", "", nil); err != nil || v != 3 {
		t.Errorf("got %d, error %v", v, err)
	}
	c = &Call{wall: &fakeWall{answer: reply(`x`)}}
	if _, err := c.Artifacts(); err == nil {
		t.Error("names that are no JSON")
	}
	if _, err := c.SaveArtifact("a", "", nil); err == nil {
		t.Error("version that is no JSON")
	}
}
