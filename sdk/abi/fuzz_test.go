package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func addGolden(f *testing.F, pattern string) {
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden vectors %s: %v", pattern, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzCanonical: what Canonical accepts is JSON with the same meaning and is a
// fixed point; what it refuses is no JSON, or breaks one of the rules that the
// package documents beyond RFC 8259.
func FuzzCanonical(f *testing.F) {
	addGolden(f, "*.json")
	for _, s := range []string{`{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `[[[]]]`, "\ufeff1", `-0.0e+1`, `{"b":{"c":[1,{"a":null}]},"a":"\u2028"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := Canonical(in)
		if err != nil {
			documented := errors.Is(err, ErrDuplicate) || !utf8.Valid(in)
			for _, rule := range []string{"lone surrogate", "nesting exceeds", "number past all floats"} {
				documented = documented || strings.Contains(err.Error(), rule)
			}
			if json.Valid(in) && !documented {
				t.Fatalf("%q: %v, yet it is JSON", in, err)
			}
			return
		}
		if !json.Valid(in) || !json.Valid(out) {
			t.Fatalf("%q was accepted as %q, yet it is no JSON", in, out)
		}
		again, err := Canonical(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q: %q becomes %q, error %v", in, out, again, err)
		}
		was, now := plain(t, in), plain(t, out)
		if !bytes.Equal(was, now) {
			t.Fatalf("%q means %s, its canonical form %q means %s", in, was, out, now)
		}
		v, err := Unmarshal(in)
		if want := decoded(t, out); err != nil || !reflect.DeepEqual(v, want) {
			t.Fatalf("%q is decoded as %#v, error %v; encoding/json makes it %#v", in, v, err, want)
		}
		if back, err := Marshal(v); err != nil || !bytes.Equal(back, out) {
			t.Fatalf("%q is encoded as %q, error %v; want %q", in, back, err, out)
		}
	})
}

// decoded is what encoding/json makes of data.
func decoded(t *testing.T, data []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// plain is what encoding/json makes of data, numbers by their text.
func plain(t *testing.T, data []byte) []byte {
	out, err := json.Marshal(decoded(t, data))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzManifest: a manifest that is accepted encodes to a manifest that is
// accepted, and encodes to the same bytes.
func FuzzManifest(f *testing.F) {
	addGolden(f, "manifest*.json")
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := ParseManifest(in)
		if err != nil {
			return
		}
		data, err := m.Encode()
		if err != nil {
			t.Fatalf("%q: accepted, but: %v", in, err)
		}
		again, err := ParseManifest(data)
		if err != nil {
			t.Fatalf("%q: encodes to %q: %v", in, data, err)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("%q: %q becomes %q, error %v", in, data, twice, err)
		}
	})
}

// FuzzVerdict: whatever a guard says, a verdict that is accepted echoes the
// question and has the members of its ruling only.
func FuzzVerdict(f *testing.F) {
	addGolden(f, "verdict*.json")
	f.Add([]byte(`{"nonce":"q7Zk","document_sha256":"d","verdict":"narrow","grants":null}`))
	f.Add([]byte(`{"verdict":"deny","reason":"no","nonce":"q7Zk","hint":"","document_sha256":"d","code":"x\u0041"}`))
	f.Add([]byte(`{"Verdict":"deny"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		q := &Question{Phase: PhaseCall, Nonce: "q7Zk", DocumentSHA256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
		if plain, ok := plainVerdict(in); ok {
			var v Verdict
			if err := Decode(in, &v); err != nil || !reflect.DeepEqual(v, plain) {
				t.Fatalf("%q: %+v, error %v; without reflection %+v", in, v, err, plain)
			}
		}
		v, err := ParseVerdict(in, q)
		if err != nil {
			if v.Ruling != "" {
				t.Fatalf("%q: %v, with the ruling %q", in, err, v.Ruling)
			}
			return
		}
		if v.Nonce != q.Nonce || v.DocumentSHA256 != q.DocumentSHA256 {
			t.Fatalf("%q: answers another question", in)
		}
		if v.Reason != "" && v.Ruling != RulingDeny || v.Hint != "" && v.Ruling != RulingConfirm ||
			len(v.Grants) > 0 && v.Ruling != RulingNarrow || (len(v.Document) > 0) != (v.Ruling == RulingRewrite) {
			t.Fatalf("%q: %+v has a stray member", in, v)
		}
		data, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseVerdict(data, q); err != nil {
			t.Fatalf("%q: encodes to %s: %v", in, data, err)
		}
	})
}

// FuzzToolResult: whatever a tool returns, a result that is accepted is in
// canonical form and is not a failure as well.
func FuzzToolResult(f *testing.F) {
	addGolden(f, "tool_result*.json")
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := ParseToolResult(in)
		if err != nil {
			return
		}
		if r.Result != nil {
			if r.Fail != nil {
				t.Fatalf("%q: both result and failure", in)
			}
			if canonical, err := Canonical(r.Result); err != nil || !bytes.Equal(canonical, r.Result) {
				t.Fatalf("%q: result %s is not canonical, error %v", in, r.Result, err)
			}
		}
		data, err := Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseToolResult(data); err != nil {
			t.Fatalf("%q: encodes to %s: %v", in, data, err)
		}
	})
}

// FuzzRequests: a request of a host call that is accepted means one thing: it
// encodes to a document that is accepted and encodes to the same bytes.
func FuzzRequests(f *testing.F) {
	addGolden(f, "host_*.json")
	f.Add([]byte(`{"key":"a","n":9223372036854775808,"most":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, into := range []func() any{
			func() any { return &LogRequest{} }, func() any { return &HTTPRequest{} }, func() any { return &StateGet{} }, func() any { return &StateSet{} },
			func() any { return &ArtifactRead{} }, func() any { return &ArtifactSave{} }, func() any { return &KVKey{} }, func() any { return &KVSet{} },
			func() any { return &KVAdd{} }, func() any { return &MemorySearch{} }, func() any { return &EmitRequest{} }, func() any { return &ConfirmRequest{} },
			func() any { return &TransferRequest{} },
		} {
			request, again := into(), into()
			if Decode(in, request) != nil {
				continue
			}
			data, err := Marshal(request)
			if err != nil {
				t.Fatalf("%T %q: %v", request, in, err)
			}
			if err := Decode(data, again); err != nil {
				t.Fatalf("%T %q: encodes to %s: %v", request, in, data, err)
			}
			if twice, err := Marshal(again); err != nil || !bytes.Equal(twice, data) {
				t.Fatalf("%T %q: %s becomes %s, error %v", request, in, data, twice, err)
			}
		}
	})
}
