package authortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// FailClosed asks a guard of a module what it cannot answer: broken questions, a
// question for somebody else, and good ones without what it needs to judge them.
// Each must end as a denial, or the app be refused. The questions are those of
// answers that let the document pass, so that a denial means something; if there is
// none, any. It reports nothing if there are no answers at all.
func FailClosed(ctx context.Context, module *host.Module, name string, answers []Answer, report func(Result)) error {
	if len(answers) == 0 {
		return nil
	}
	c := &closed{module: module, asked: answers[0], kv: -1}
	for _, g := range module.Manifest().Guards {
		if g.Name == name || name == "" {
			c.guard = g
		}
	}
	for i, a := range answers {
		if a.Verdict.Ruling != abi.RulingDeny && c.asked.Verdict.Ruling == abi.RulingDeny {
			c.asked = a
		}
		if a.KV && (c.kv < 0 || answers[c.kv].Verdict.Ruling == abi.RulingDeny) {
			c.kv = i
		}
	}
	if c.kv >= 0 {
		c.counted = answers[c.kv]
	}
	var err error
	if c.grants, err = capability.ParseSet(module.Manifest().Requests); err != nil {
		return err
	}
	guard, err := ModuleGuard(module, name, host.Limits{})(ctx, c.asked.Settings, nil, nil)
	if err != nil {
		return err
	}
	c.question = c.asked.Question
	c.question.Guard, c.question.Nonce, c.question.Settings = c.guard.Name, strings.Repeat("1", 32), settingsOf(c.asked.Settings, c.guard)
	if c.input, err = abi.Marshal(&c.question); err != nil {
		return err
	}
	if err := c.measure(ctx); err != nil {
		return err
	}
	for _, check := range c.checks(guard) {
		r := Result{Name: check.name, OK: true}
		if passed := check.run(ctx); passed != "" {
			r.OK = false
			r.problem("fail-closed", "a denial", passed)
		}
		report(r)
	}
	return nil
}

// closed is a run of the suite.
type closed struct {
	module   *host.Module
	guard    abi.Guard
	grants   capability.Set
	asked    Answer
	question abi.Question // of asked, complete
	input    []byte       // question, as the guest reads it
	spent    host.Receipt // of asked
	kv       int          // index of counted; -1: no answer used kv
	counted  Answer
}

// A check returns what came in place of a denial; "" is a denial.
type check struct {
	name string
	run  func(ctx context.Context) string
}

func (c *closed) checks(guard flow.Guard) []check {
	raw := func(name string, input []byte) check {
		return check{name, func(ctx context.Context) string { return c.raw(ctx, input, c.question) }}
	}
	limited := func(name string, l host.Limits) check {
		return check{name, func(ctx context.Context) string { return c.ask(ctx, l, c.asked, nil) }}
	}
	other := c.question
	other.Nonce = strings.Repeat("2", 32)
	elsewhere := c.question
	elsewhere.DocumentSHA256 = strings.Repeat("3", 64)
	// A document that is none never reaches a guest.
	broken := func(name, document string) check {
		return check{name, func(ctx context.Context) string {
			q := c.question
			q.SetDocument(json.RawMessage(document))
			return passed(flow.Ask(ctx, guard, q, GuardWall))
		}}
	}
	lunch := c.question
	lunch.Phase = "lunch"
	list := []check{
		raw("no input", nil),
		raw("a question that ends early", c.input[:len(c.input)/2]),
		broken("a document with a key twice", `{"a":1,"a":2}`),
		broken("a document with bytes after it", `{}{}`),
		broken("a document that is not UTF-8", "{\"a\":\"\xff\"}"),
		{"a guard that the module has not", func(ctx context.Context) string {
			if _, err := ModuleGuard(c.module, c.guard.Name+"_", host.Limits{})(ctx, c.asked.Settings, nil, nil); err == nil {
				return "it is installed"
			}
			return ""
		}},
		{"an answer to another question", func(ctx context.Context) string { return c.raw(ctx, c.input, other) }},
		{"an answer about another document", func(ctx context.Context) string { return c.raw(ctx, c.input, elsewhere) }},
		{"a phase that does not exist", func(ctx context.Context) string { return passed(flow.Ask(ctx, guard, lunch, GuardWall)) }},
		limited("one page of memory", host.Limits{MemoryBytes: max(1, min(64<<10, c.spent.PeakBytes-1))}),
		limited("one percent of its fuel", host.Limits{Fuel: max(1, c.spent.Fuel/100)}),
		limited("one byte of output", host.Limits{OutputBytes: 1}),
		{"no time", func(ctx context.Context) string { return passed(flow.Ask(ctx, guard, c.question, time.Nanosecond)) }},
		{"a run that was cancelled", func(ctx context.Context) string {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return passed(flow.Ask(ctx, guard, c.question, GuardWall))
		}},
	}
	if len(c.guard.Settings) > 0 {
		list = append(list, check{"settings that it does not know", c.strange})
	}
	if c.kv >= 0 {
		down := &rowKV{}
		down.reset(&storage{down: true})
		list = append(list, check{"kv unavailable", func(ctx context.Context) string { return c.ask(ctx, host.Limits{}, c.counted, down) }})
	}
	return list
}

// measure finds out what the question costs.
func (c *closed) measure(ctx context.Context) error {
	kv := &rowKV{}
	kv.reset(nil)
	guard, err := ModuleGuard(c.module, c.guard.Name, host.Limits{})(ctx, c.asked.Settings, kv, func(r host.Receipt) { c.spent = r })
	if err == nil {
		flow.Ask(ctx, guard, c.question, GuardWall)
	}
	return err
}

// ask asks a guard that has these limits.
func (c *closed) ask(ctx context.Context, l host.Limits, a Answer, kv host.KVStore) string {
	guard, err := ModuleGuard(c.module, c.guard.Name, l)(ctx, a.Settings, kv, nil)
	if err != nil {
		return "" // the app is refused
	}
	return passed(flow.Ask(ctx, guard, a.Question, GuardWall))
}

// strange installs the guard with a setting that nobody knows.
func (c *closed) strange(ctx context.Context) string {
	settings := map[string]json.RawMessage{}
	if c.asked.Settings != nil {
		if err := json.Unmarshal(c.asked.Settings, &settings); err != nil {
			return err.Error()
		}
	}
	settings["no_such_setting"] = json.RawMessage("true")
	doc, err := abi.Marshal(settings)
	if err != nil {
		return err.Error()
	}
	_, err = ModuleGuard(c.module, c.guard.Name, host.Limits{})(ctx, doc, nil, nil)
	if _, refused := errors.AsType[*policies.SettingsError](err); refused {
		return ""
	}
	return "the guard is installed"
}

// passed says what a judgement is if it is no denial.
func passed(j flow.Judgement) string {
	if j.Err != nil || j.Verdict.Ruling == abi.RulingDeny {
		return ""
	}
	return fmt.Sprintf("verdict %s", j.Verdict.Ruling)
}

// settingsOf returns settings as the guest gets them.
func settingsOf(settings json.RawMessage, g abi.Guard) json.RawMessage {
	if settings == nil && len(g.Settings) > 0 {
		return json.RawMessage("{}")
	}
	return settings
}
