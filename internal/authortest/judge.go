package authortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Maker makes the guard that a table tests, with these settings, nil for none,
// and a store for its kv. spent is to be told of every call of a guest, if the guard
// is one.
type Maker func(ctx context.Context, settings json.RawMessage, kv host.KVStore, spent func(host.Receipt)) (flow.Guard, error)

// ModuleGuard returns a Maker of guards of a module; name is empty if it has but
// one. limits are lowered from those of guards in production; zero: as there. Time
// is not bounded as there: see the comment of the package.
func ModuleGuard(module *host.Module, name string, limits host.Limits) Maker {
	if limits.Wall == 0 {
		limits.Wall = GuardWall
	}
	return func(ctx context.Context, settings json.RawMessage, kv host.KVStore, spent func(host.Receipt)) (flow.Guard, error) {
		return policies.New(ctx, module, policies.Config{Guard: name, Settings: settings, Limits: limits, KV: kv, Spent: spent})
	}
}

// An Answer is what a guard said to one question of a table.
type Answer struct {
	Settings json.RawMessage
	Question abi.Question
	Verdict  abi.Verdict
	KV       bool // it asked kv
}

// Run runs the rows whose names match, nil for all, and reports each when it has
// ended. It returns what the guard answered to whole documents. It fails only if
// the table cannot be run at all.
func (t *Table) Run(ctx context.Context, make Maker, match func(name string) bool, report func(Result)) ([]Answer, error) {
	r := &rows{table: t, make: make, guards: map[string]flow.Guard{}, kv: &rowKV{}}
	for _, row := range t.rows {
		if match != nil && !match(row.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		report(r.run(ctx, row))
	}
	return r.answers, nil
}

// rows is a run of the rows of a table.
type rows struct {
	table   *Table
	make    Maker
	guards  map[string]flow.Guard // by settings
	kv      *rowKV
	answers []Answer

	mu    sync.Mutex
	spent Result // receipts of the row that runs
}

// guard returns the guard with these settings.
func (r *rows) guard(ctx context.Context, settings json.RawMessage) (flow.Guard, error) {
	if g := r.guards[string(settings)]; g != nil {
		return g, nil
	}
	g, err := r.make(ctx, settings, r.kv, func(receipt host.Receipt) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spent.Calls++
		r.spent.Fuel += receipt.Fuel
		r.spent.WallUS += receipt.WallUS
	})
	if err == nil {
		r.guards[string(settings)] = g
	}
	return g, err
}

func (r *rows) run(ctx context.Context, row row) Result {
	res := &Result{File: r.table.File, Line: row.line, Name: row.name}
	settings := row.settings
	if settings == nil {
		settings = r.table.settings
	}
	r.kv.reset(row.kv)
	guard, err := r.guard(ctx, settings)
	refused, bySettings := errors.AsType[*policies.SettingsError](err)
	switch {
	case row.refused != nil && bySettings:
		if !row.refused.MatchString(refused.Err.Error()) {
			res.problem("refused", row.refused.String(), refused.Err.Error())
		}
		return r.end(res)
	case row.refused != nil && err == nil:
		res.problem("settings", "refused", "accepted")
		return r.end(res)
	case err != nil:
		res.problem("guard", "", err.Error())
		return r.end(res)
	}
	r.mu.Lock()
	r.spent = Result{} // a guard's own checks are not the row's
	r.mu.Unlock()
	if row.parallel > 0 {
		r.atOnce(ctx, res, row, guard)
		return r.end(res)
	}
	for _, st := range row.steps {
		prefix := ""
		if len(row.steps) > 1 {
			prefix = st.name + ": "
		}
		before := len(res.Problems)
		r.step(ctx, res, st, guard, settings)
		for i := range res.Problems[before:] {
			res.Problems[before+i].What = prefix + res.Problems[before+i].What
		}
		if len(res.Problems) > before {
			res.Line = st.line
			break // what follows builds on it
		}
	}
	return r.end(res)
}

func (r *rows) end(res *Result) Result {
	res.OK = len(res.Problems) == 0
	r.mu.Lock()
	defer r.mu.Unlock()
	res.Calls, res.Fuel, res.WallUS = r.spent.Calls, r.spent.Fuel, r.spent.WallUS
	return *res
}

// atOnce asks one question several times at the same time and counts the verdicts.
func (r *rows) atOnce(ctx context.Context, res *Result, row row, guard flow.Guard) {
	q, err := row.steps[0].overlay.over(r.table.base).question(guard)
	if err != nil {
		res.problem("question", "", err.Error())
		return
	}
	r.clock(&q)
	got := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range row.parallel {
		wg.Go(func() {
			j := flow.Ask(ctx, guard, q, GuardWall)
			mu.Lock()
			defer mu.Unlock()
			got[string(j.Verdict.Ruling)]++
		})
	}
	wg.Wait()
	if !maps.Equal(got, row.counts) {
		res.problem("verdicts", counts(row.counts), counts(got))
	}
}

func counts(m map[string]int) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s %d", key, m[key]))
	}
	return strings.Join(list, ", ")
}

func (r *rows) clock(q *abi.Question) {
	if now, err := time.Parse(time.RFC3339Nano, q.Now); err == nil { // else the guard's door says so
		r.kv.at(now)
	}
}

func (r *rows) step(ctx context.Context, res *Result, st step, guard flow.Guard, settings json.RawMessage) {
	o := st.overlay.over(r.table.base)
	q, err := o.question(guard)
	if _, ok := errors.AsType[invalidArgs](err); ok {
		compare(res, st.want, abi.Question{}, flow.Judgement{Verdict: abi.Deny("args_invalid", ""), Err: err})
		return
	}
	if err != nil {
		res.problem("question", "", err.Error())
		return
	}
	r.clock(&q)
	r.kv.wasUsed()
	if o.chunks != nil {
		r.stream(ctx, res, st, guard, q, o.chunks)
		return
	}
	j := flow.Ask(ctx, guard, q, GuardWall)
	r.answers = append(r.answers, Answer{settings, q, j.Verdict, r.kv.wasUsed()})
	compare(res, st.want, q, j)
	r.stored(ctx, res, st.want)
}

// stored compares what is kept.
func (r *rows) stored(ctx context.Context, res *Result, w want) {
	for _, key := range slices.Sorted(maps.Keys(w.kv)) {
		got, found, err := r.kv.get(ctx, key)
		switch {
		case err != nil:
			res.problem("kv "+key, string(w.kv[key]), err.Error())
		case !found && string(w.kv[key]) != "null":
			res.problem("kv "+key, string(w.kv[key]), "nothing")
		case found && string(got) != string(w.kv[key]):
			res.problem("kv "+key, string(w.kv[key]), string(got))
		}
	}
}

// code returns the code of a judgement: the guard's own, or the platform's if there
// was no verdict.
func code(j flow.Judgement) string {
	if j.Err != nil && j.Verdict.Code == "" {
		return string(abi.PolicyUnavailable)
	}
	return j.Verdict.Code
}

// compare compares a judgement with what is wanted. A denial for want of a verdict
// is wanted only where it is named.
func compare(res *Result, w want, q abi.Question, j flow.Judgement) {
	v := j.Verdict
	wanted, got := string(w.verdict), strings.TrimSpace(string(v.Ruling)+" "+code(j))
	wrong := v.Ruling != w.verdict
	switch {
	case w.code != nil:
		wanted += " " + *w.code
		wrong = wrong || *w.code != code(j)
	case j.Err != nil:
		wrong = true
	case !wrong:
		got = wanted
	}
	if wrong {
		if j.Err != nil {
			got += " (" + j.Err.Error() + ")"
		}
		res.problem("verdict", wanted, got)
		return
	}
	if w.reason != nil && !w.reason.MatchString(v.Reason) {
		res.problem("reason", w.reason.String(), v.Reason)
	}
	if w.hint != nil && !w.hint.MatchString(v.Hint) {
		res.problem("hint", w.hint.String(), v.Hint)
	}
	if w.at != nil && !slices.ContainsFunc(v.Why, func(y abi.Why) bool { return y.At == *w.at }) {
		var at []string
		for _, y := range v.Why {
			at = append(at, y.At)
		}
		res.problem("at", *w.at, strings.Join(at, ", "))
	}
	if w.hold != nil && *w.hold != int64(v.Hold) {
		res.problem("hold", fmt.Sprint(*w.hold), fmt.Sprint(v.Hold))
	}
	if w.rewrite != nil {
		document, _ := abi.Canonical(v.Document) // nothing, if that is no document
		if string(document) != string(w.rewrite) {
			res.problem("rewrite", string(w.rewrite), string(v.Document))
		}
	}
	if w.text != nil {
		if text := textOf(v.Document); text != *w.text {
			res.problem("text", *w.text, text)
		}
	}
	if w.grants != nil {
		left, err := left(q, v)
		if err != nil {
			res.problem("grants", strings.Join(w.grants.Lines(), "; "), err.Error())
		} else if !slices.Equal(left.Lines(), w.grants.Lines()) {
			res.problem("grants", strings.Join(w.grants.Lines(), "; "), strings.Join(left.Lines(), "; "))
		}
	}
}

// left returns what a call is granted after a verdict.
func left(q abi.Question, v abi.Verdict) (capability.Set, error) {
	given, err := capability.ParseSet(q.Grants)
	if err != nil || v.Ruling != abi.RulingNarrow {
		return given, err
	}
	narrowed, err := capability.ParseSet(v.Grants)
	return given.Intersect(narrowed), err
}

// textOf returns what a message, a response or a request says, its parts joined.
func textOf(document json.RawMessage) string {
	type content struct {
		Parts []struct {
			Text string `json:"text"`
		} `json:"parts"`
	}
	var d struct {
		content
		Content  content   `json:"content"`
		Contents []content `json:"contents"`
	}
	_ = json.Unmarshal(document, &d) // what is none of these says nothing
	var b strings.Builder
	for _, c := range append([]content{d.content, d.Content}, d.Contents...) {
		for _, p := range c.Parts {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}
