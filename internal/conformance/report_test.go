package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestJoin(t *testing.T) {
	passed, deviates := Result{Name: "v", Verdict: Passed}, Result{Name: "v", Verdict: Deviates}
	failed := func(why string) Result { return Result{Name: "v", Verdict: Failed, Difference: why} }
	for _, c := range []struct {
		name               string
		native, wasm, want Result
	}{
		{"both pass", passed, passed, passed},
		{"both deviate", deviates, deviates, deviates},
		{"native fails", failed("a"), passed, failed("native: a")},
		{"wasm fails", passed, failed("b"), failed("wasm: b")},
		{"wasm fails where native deviates", deviates, failed("b"), failed("wasm: b")},
		{"both fail alike", failed("a"), failed("a"), failed("a")},
		{"both fail", failed("a"), failed("b"), failed("native: a")},
		{"they do not agree", passed, deviates, failed("native passed, wasm deviates")},
	} {
		if got := join(c.native, c.wasm); got.Name != "v" || got.Verdict != c.want.Verdict || got.Difference != c.want.Difference {
			t.Errorf("%s: got %s %q, want %s %q", c.name, got.Verdict, got.Difference, c.want.Verdict, c.want.Difference)
		}
	}
}

var sample = Report{Handlers: ModeWasm, Results: []Result{
	{Name: "good", Verdict: Passed, Ran: 1, Effects: []Effect{{By: "save", Call: "artifact_save", Detail: "r.txt", Code: abi.OK}}},
	{Name: "bad", Verdict: Failed, Difference: "/turns: want \"a\",\n\tgot \"\u202eb\""},
	{Name: "other", Verdict: Deviates, Ran: 2},
	{Name: "fine", Verdict: Passed},
}}

func TestWriteText(t *testing.T) {
	var b bytes.Buffer
	if err := sample.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := "FAIL\tbad\t/turns: want \"a\",\\u000a\\u0009got \"\\u202eb\"\n" +
		"deviates\tother\n" +
		"2 passed, 1 failed, 1 deviates\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	if err := sample.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	want := `{"format":1,"handlers":"wasm","passed":2,"failed":1,"deviates":1,"vectors":[` +
		`{"name":"good","verdict":"passed","ran":1,"effects":[{"by":"save","call":"artifact_save","detail":"r.txt","code":"ok"}]},` +
		`{"name":"bad","verdict":"failed","difference":"/turns: want \"a\",\n\tgot \"` + "\u202e" + `b\"","ran":0},` +
		`{"name":"other","verdict":"deviates","ran":2},` +
		`{"name":"fine","verdict":"passed","ran":0}]}` + "\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Run builds and opens what a mode needs; a vector counts once.
func TestRun(t *testing.T) {
	var vectors []*Vector
	for _, name := range []string{"artifact_saved_by_tool", "loop_plain_text", "tool_panic"} {
		found, err := Load(dataDir + "/vectors/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, found...)
	}
	r, err := Run(t.Context(), vectors, Options{Handlers: ModeBoth, Build: caches.build, Engine: caches.engine})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if want := "deviates\ttool_panic\n2 passed, 0 failed, 1 deviates\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	saved := Effect{By: "save", Call: "artifact_save", Detail: "r.txt", Code: abi.OK}
	if first := r.Results[0]; first.Name != "artifact_saved_by_tool" || !slices.Equal(first.Effects, []Effect{saved, saved}) {
		t.Errorf("result of a vector that saves twice: %+v", first)
	}
	if r, err := Run(t.Context(), vectors, Options{}); err != nil || r.Handlers != ModeNative {
		t.Errorf("zero options: %+v, %v, want native handlers", r, err)
	}
	if _, err := Run(t.Context(), vectors, Options{Handlers: "wsam"}); err == nil || !strings.Contains(err.Error(), `"wsam"`) {
		t.Errorf("unknown handlers: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, vectors, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("context that has ended: %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(path, why string) {
		t.Helper()
		if v, err := Load(path); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %d vectors, %v, want an error with %q", path, len(v), err, why)
		}
	}
	refused(filepath.Join(dir, "none"), "no such file")
	refused(dir, "no vector found")
	write("b.json", `{"format":1,"name":"b"}`)
	write("a.json", `{"format":1,"name":"a"}`)
	write("notes.txt", `not a vector`)
	vectors, err := Load(dir)
	if err != nil || len(vectors) != 2 || vectors[0].Name != "a" || vectors[1].Name != "b" {
		t.Errorf("folder: %v, %v, want vectors a and b", vectors, err)
	}
	write("c.json", `{"format":1,"name":"c","extra":true}`)
	refused(dir, `c.json: json: unknown field "extra"`)
	write("c.json", `{"format":2,"name":"c"}`)
	refused(filepath.Join(dir, "c.json"), "format 2")
}

func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 100} {
		var sum atomic.Int64
		each(n, func(i int) { sum.Add(int64(i) + 1) })
		if want := int64(n * (n + 1) / 2); sum.Load() != want {
			t.Errorf("each(%d): sum %d, want %d", n, sum.Load(), want)
		}
	}
}
