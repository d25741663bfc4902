package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// Twins makes guards that are asked in the sandbox, and then natively: the test binary has
// the same Go packages. What differs is told of.
type twins struct {
	t      *testing.T
	module *host.Module
	guard  string
	differ func(what string)
	// natively returns the settings that the native guard gets; nil: the same.
	natively func(settings json.RawMessage) json.RawMessage

	mu    sync.Mutex // one judgement at a time: of a question asked many times at once, too
	asked int        // questions
}

// maker makes the guard of a table.
func (w *twins) maker(ctx context.Context, settings json.RawMessage, store host.KVStore, spent func(host.Receipt)) (flow.Guard, error) {
	own := settings
	if w.natively != nil {
		own = w.natively(settings)
	}
	tape := &tape{store: store}
	guard, err := authortest.ModuleGuard(w.module, w.guard, host.Limits{})(ctx, settings, tape, spent)
	var h guesttest.Host
	refused := h.Settings(w.t, w.guard, string(own))
	if refused != nil {
		refused = fmt.Errorf("guard %s: settings: %w", w.guard, refused)
	}
	if a, b := refusal(err), refusal(refused); a != b {
		w.differ(fmt.Sprintf("settings %s: in the sandbox %s, natively %s", settings, a, b))
	}
	if err != nil {
		return nil, err
	}
	return &twin{guard, w, tape, string(own)}, nil
}

// refusal is why settings are refused. Of several mistakes that a schema knows, its validator
// names any one.
func refusal(err error) string {
	text := fmt.Sprint(err)
	before, why, _ := strings.Cut(text, "settings: ")
	if strings.HasPrefix(why, "validating ") || strings.HasPrefix(why, "/") {
		return before + "settings: by their schema"
	}
	return text
}

// A twin answers in the sandbox, and looks what it says natively.
type twin struct {
	flow.Guard
	of       *twins
	tape     *tape
	settings string // of the native guard
}

// Judge implements [flow.Guard].
func (g *twin) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.of.asked++
	g.tape.calls = nil
	verdict, err := g.Guard.Judge(ctx, q)
	replay := &replay{left: g.tape.calls}
	h := guesttest.Host{KVStore: replay}
	own := h.Judge(g.of.t, g.of.guard, g.settings, *q)
	for _, difference := range differences(verdict, own.Verdict, err, own.Err) {
		g.of.differ(difference)
	}
	for _, call := range replay.left {
		replay.strayed = append(replay.strayed, "never asked natively: "+call.text)
	}
	for _, stray := range replay.strayed {
		g.of.differ("kv: " + stray)
	}
	return verdict, err
}

// differences says in what two judgements of one question differ: all of the verdicts, with
// the nonce, and the ends of calls that gave none.
func differences(sandboxed, natively abi.Verdict, err, own error) (all []string) {
	if err != nil || own != nil {
		if a, b := end(err), end(own); a != b {
			all = append(all, fmt.Sprintf("error: in the sandbox %s (%v), natively %s (%v)", a, err, b, own))
		}
		return all
	}
	var members [2]map[string]json.RawMessage
	for i, v := range []abi.Verdict{sandboxed, natively} {
		data, err := abi.Marshal(v)
		if err == nil {
			err = json.Unmarshal(data, &members[i])
		}
		if err != nil {
			return []string{"verdict: " + err.Error()}
		}
	}
	names := map[string]bool{}
	for _, m := range members {
		for name := range m {
			names[name] = true
		}
	}
	for name := range names {
		if a, b := members[0][name], members[1][name]; string(a) != string(b) {
			all = append(all, fmt.Sprintf("%s: in the sandbox %s, natively %s", name, a, b))
		}
	}
	slices.Sort(all)
	return all
}

// end is how a call ended that gave no verdict.
func end(err error) string {
	if failed, ok := errors.AsType[*host.GuestError](err); ok {
		return string(failed.Code)
	}
	return fmt.Sprint(err)
}

// A tape keeps what a guard asked a store, and what that answered.
type tape struct {
	store host.KVStore
	calls []kvCall
}

// A kvCall is one call of kv.
type kvCall struct {
	text  string // with all that was asked
	value json.RawMessage
	count int64
	ok    bool // found, or added
	err   error
}

// Scope implements [host.KVStore].
func (p *tape) Scope(s host.KVScope) host.KV { return taped{p.store.Scope(s), p} }

type taped struct {
	kv   host.KV
	tape *tape
}

func (k taped) add(c kvCall) { k.tape.calls = append(k.tape.calls, c) }

func (k taped) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	value, found, err := k.kv.Get(ctx, key)
	k.add(kvCall{text: "get " + key, value: value, ok: found, err: err})
	return value, found, err
}

func (k taped) Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	err := k.kv.Set(ctx, key, value, ttl)
	k.add(kvCall{text: fmt.Sprintf("set %s to %s for %s", key, value, ttl), err: err})
	return err
}

func (k taped) Delete(ctx context.Context, key string) error {
	err := k.kv.Delete(ctx, key)
	k.add(kvCall{text: "delete " + key, err: err})
	return err
}

func (k taped) Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	count, added, err := k.kv.Add(ctx, key, n, most, ttl)
	k.add(kvCall{text: fmt.Sprintf("add %d to %s, at most %d, for %s", n, key, most, ttl), count: count, ok: added, err: err})
	return count, added, err
}

// A replay answers as a store did, as long as it is asked the same. It is a store and each
// of its scopes.
type replay struct {
	left    []kvCall
	strayed []string
}

// Scope implements [host.KVStore].
func (r *replay) Scope(host.KVScope) host.KV { return r }

func (r *replay) next(format string, args ...any) kvCall {
	text := fmt.Sprintf(format, args...)
	if len(r.left) == 0 || r.left[0].text != text {
		want := "nothing"
		if len(r.left) > 0 {
			want = r.left[0].text
		}
		r.strayed = append(r.strayed, fmt.Sprintf("in the sandbox %s, natively %s", want, text))
		return kvCall{err: errors.New("not asked in the sandbox")}
	}
	c := r.left[0]
	r.left = r.left[1:]
	return c
}

func (r *replay) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	c := r.next("get %s", key)
	return c.value, c.ok, c.err
}

func (r *replay) Set(_ context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	return r.next("set %s to %s for %s", key, value, ttl).err
}

func (r *replay) Delete(_ context.Context, key string) error { return r.next("delete %s", key).err }

func (r *replay) Add(_ context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	c := r.next("add %d to %s, at most %d, for %s", n, key, most, ttl)
	return c.count, c.ok, c.err
}

// agree has every row of a guard's table judged both ways.
func agree(t *testing.T, module *host.Module, guard string) {
	t.Helper()
	row := ""
	w := &twins{t: t, module: module, guard: guard}
	w.differ = func(what string) { t.Errorf("after row %q: %s", row, what) }
	tab := table(t, guard)
	if _, err := tab.Run(t.Context(), w.maker, nil, func(r authortest.Result) {
		row = r.Name
		if !r.OK {
			t.Errorf("%s:%d: %s: %+v", r.File, r.Line, r.Name, r.Problems)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if w.asked == 0 {
		t.Error("no question was asked both ways")
	}
	t.Logf("%d rows, %d questions", tab.Rows(), w.asked)
}

// differing has a guard judged both ways with different settings, which stands for code that
// differs, and wants to be told of what follows from that.
func differing(t *testing.T, module *host.Module, guard, old, new string, want ...string) {
	t.Helper()
	var got []string
	w := &twins{t: t, module: module, guard: guard, differ: func(what string) { got = append(got, what) }}
	w.natively = func(settings json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.Replace(string(settings), old, new, 1))
	}
	if _, err := table(t, guard).Run(t.Context(), w.maker, nil, func(authortest.Result) {}); err != nil {
		t.Fatal(err)
	}
	for _, begins := range want {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, begins) }) {
			t.Errorf("%s: nothing is said of %q; only %q", guard, begins, got)
		}
	}
}
