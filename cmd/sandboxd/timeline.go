package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A runWriter shows a run: as a timeline on standard error for people, or as one
// JSON document a line on standard output. Its methods may be called from the
// goroutines of a run.
type runWriter struct {
	e     *env
	flags *runFlags
	p     palette
	began time.Time
	key   session.Key

	mu       sync.Mutex
	run      string // known from the first event on
	refused  int
	asked    []session.Question
	verdicts map[string][]verdictLine // by call, until its result
}

type verdictLine struct {
	Guard   string     `json:"guard"`
	Phase   abi.Phase  `json:"phase"`
	Verdict abi.Ruling `json:"verdict"`
	Code    string     `json:"code,omitempty"`
	Failed  bool       `json:"failed,omitempty"`  // no usable verdict, so a denial
	Monitor bool       `json:"monitor,omitempty"` // it changed nothing
	Why     []abi.Why  `json:"why,omitempty"`
	TookUS  int64      `json:"took_us"`
}

func newRunWriter(e *env, f *runFlags) *runWriter {
	return &runWriter{e: e, flags: f, p: e.palette(e.stderr), began: e.now(), verdicts: map[string][]verdictLine{}}
}

func (w *runWriter) start(rt *app.Runtime, key session.Key) {
	w.key = key
	model := "model " + rt.File.Model.Use
	if rt.File.Model.Use == "script" {
		model += " (offline)"
	}
	parts := plural(len(rt.Plugins), "plugin") + ", " + plural(len(rt.Guards), "guard")
	if n := len(rt.File.MCP); n > 0 {
		parts += ", " + plural(n, "MCP server")
	}
	w.line("", "%s · session %s · %s · %s", rt.File.Name, key.ID, model, parts)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// line writes a line of the timeline; a kind of "" writes no time.
func (w *runWriter) line(kind, format string, args ...any) {
	if w.flags.json || !w.e.stderr.terminal && !w.e.progress.verbose {
		return
	}
	text := fmt.Sprintf(format, args...)
	if kind != "" {
		text = fmt.Sprintf(" %.2f  %-7s %s", w.e.now().Sub(w.began).Seconds(), kind, text)
	}
	fmt.Fprintln(w.e.stderr, text)
}

func (w *runWriter) value(v any) string {
	data, err := abi.Marshal(v)
	if err != nil {
		return "?"
	}
	return foreign(string(data), w.flags.full)
}

// emit writes one document with --json.
func (w *runWriter) emit(kind string, members map[string]any) {
	if !w.flags.json {
		return
	}
	members["type"] = kind
	data, err := json.Marshal(members)
	if err != nil {
		data = []byte(fmt.Sprintf(`{"type":%q}`, kind))
	}
	fmt.Fprintf(w.e.stdout, "%s\n", data)
}

// started writes the first document, once the run has a name.
func (w *runWriter) started(run string) {
	if w.run == "" && run != "" {
		w.run = run
		w.emit("run.started", map[string]any{"format": 1, "run": run, "session": w.key.ID, "app": w.key.App})
	}
}

func (w *runWriter) said(text string) { w.line("you", "%s", foreign(text, w.flags.full)) }

func (w *runWriter) event(ev *session.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started(ev.InvocationID)
	if ev.Partial {
		if text := ev.Text(); text != "" {
			w.emit("message.delta", map[string]any{"author": ev.Author, "text": text})
		}
		return
	}
	var calls []string
	for _, c := range ev.Calls() {
		if c.Name != "adk_request_confirmation" {
			calls = append(calls, c.Name+" "+w.value(c.Args))
		}
	}
	if len(calls) > 0 {
		w.line("model", "%s", strings.Join(calls, "   "))
	}
	if text := ev.Text(); text != "" {
		w.emit("message", map[string]any{"author": ev.Author, "text": text, "final": ev.Final()})
		if len(calls) > 0 {
			w.line("model", "%s", foreign(text, w.flags.full))
		}
	}
	if ev.ErrorCode != "" {
		w.emit("message", map[string]any{"author": ev.Author, "error_code": ev.ErrorCode, "error_message": ev.ErrorMessage})
	}
}

func (w *runWriter) observer() flow.Observer {
	return flow.Observer{Decided: w.decided, Finished: w.finished, Asked: w.question}
}

func (w *runWriter) decided(c flow.CallInfo, d *flow.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started(c.Run)
	var allowed []string
	var lines []verdictLine
	var took time.Duration
	what := c.Tool
	if what == "" {
		what = string(d.Phase)
	}
	for _, j := range d.Judgements {
		v := verdictLine{Guard: j.Guard, Phase: d.Phase, Verdict: j.Verdict.Ruling, Code: j.Verdict.Code, Failed: j.Err != nil, Monitor: j.Monitor, Why: j.Verdict.Why, TookUS: j.Took.Microseconds()}
		if v.Failed {
			v.Code = string(abi.PolicyUnavailable)
		}
		if c.Tool != "" {
			w.verdicts[c.ID] = append(w.verdicts[c.ID], v)
		} else {
			lines = append(lines, v)
		}
		took = max(took, j.Took)
		name := j.Guard
		if v.Code != "" {
			name += "/" + v.Code
		}
		var why string
		for _, x := range j.Verdict.Why {
			why += "   " + foreign(x.At, false) + "  " + foreign(x.Saw, w.flags.full)
		}
		if j.Monitor {
			if j.Verdict.Ruling != abi.RulingAllow {
				w.line("guards", "would %s   %s   %s%s", j.Verdict.Ruling, what, foreign(name, false), why)
			}
			continue
		}
		switch j.Verdict.Ruling {
		case abi.RulingDeny:
			if j.Err != nil {
				why = "   " + foreign(j.Err.Error(), w.flags.full)
			}
			w.line("guards", "%s    %s   %s%s", w.p.red("DENY"), what, foreign(name, false), why)
		case abi.RulingConfirm:
			w.line("guards", "%s     %s   %s  %q", w.p.yellow("ASK"), c.Tool, foreign(name, false), j.Verdict.Hint)
		default:
			allowed = append(allowed, foreign(name, false))
		}
	}
	if len(allowed) > 0 && d.Ruling == abi.RulingAllow && d.Phase == abi.PhaseCall {
		w.line("guards", "%s   %s   %s", w.p.green("allow"), strings.Join(allowed, ", "), since(took))
	}
	if c.Tool == "" {
		w.emit("guards", map[string]any{"phase": d.Phase, "verdict": d.Ruling, "verdicts": lines})
		if d.Ruling == abi.RulingDeny {
			w.refused++
		}
	}
}

func since(d time.Duration) string { return took(d) }

func (w *runWriter) finished(c flow.CallInfo, r flow.CallResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started(c.Run)
	switch r.Code {
	case abi.PolicyDenied, abi.PolicyUnavailable, abi.CapabilityDenied, abi.StorageUnavailable:
		w.refused++
	}
	receipt, _ := r.Receipt.(host.Receipt)
	if len(receipt.Denied) > 0 && r.Code != abi.PolicyDenied {
		w.refused++
	}
	w.emit("tool.call", map[string]any{"id": c.ID, "tool": c.Tool, "args_sha256": c.ArgsSHA256, "verdicts": orEmpty(w.verdicts[c.ID])})
	delete(w.verdicts, c.ID)
	result := map[string]any{"id": c.ID, "tool": c.Tool, "code": r.Code, "response": r.Response, "took_us": r.Took.Microseconds()}
	if r.Receipt != nil {
		result["receipt"] = r.Receipt
	}
	w.emit("tool.result", result)
	word := string(r.Code)
	if receipt.In != "" {
		word = "STOPPED " + word
	}
	if r.Code != abi.OK {
		word = w.p.red(word)
	}
	w.line("tool", "%s %s   %s", c.Tool, word, w.value(r.Response))
	if r.Code != abi.OK && r.Err != nil {
		w.line("", "                %s", foreign(r.Err.Error(), w.flags.full))
	}
	if r.Receipt != nil {
		w.line("", "                %s", receiptText(receipt))
	}
}

// receiptText is a receipt in one line.
func receiptText(r host.Receipt) string {
	parts := []string{"fuel " + fuel(r.Fuel), "memory " + size(r.PeakBytes), took(time.Duration(r.WallUS) * time.Microsecond), plural(r.HostCalls, "host call")}
	if len(r.Used) > 0 {
		parts = append(parts, "used "+foreign(strings.Join(r.Used, ", "), false))
	}
	if len(r.Denied) > 0 {
		parts = append(parts, "DENIED "+foreign(strings.Join(r.Denied, ", "), false))
	}
	return strings.Join(stopped(append(parts, shortDigest(r.Module)), r), " · ")
}

func orEmpty(v []verdictLine) []verdictLine {
	if v == nil {
		return []verdictLine{}
	}
	return v
}

// hostCall shows the host calls of guests with --trace.
func (w *runWriter) hostCall() func(tool, callID string, hc host.HostCall) {
	if !w.flags.trace {
		return nil
	}
	return func(tool, callID string, hc host.HostCall) {
		w.mu.Lock()
		defer w.mu.Unlock()
		end := "ok"
		if hc.Code != abi.OK {
			end = w.p.red("DENIED") + "  needs " + foreign(hc.Need, false)
		}
		w.line("host", "%s %s %s %s   %s", tool, took(hc.At), hc.Name, foreign(hc.Detail, w.flags.full), end)
		w.emit("host.call", map[string]any{"call": callID, "tool": tool, "function": hc.Name, "detail": hc.Detail, "code": hc.Code, "need": hc.Need})
	}
}

func (w *runWriter) question(q session.Question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, q)
	w.emit("confirmation.requested", map[string]any{"id": q.ID, "call": q.Call, "tool": q.Tool, "args_sha256": q.ArgsSHA256, "expires": q.Expires})
	w.line("waits", "%s   %s   expires in %s", q.ID, q.Tool, q.Expires.Sub(q.Asked))
}

// takeAsked returns the questions since the last time.
func (w *runWriter) takeAsked() []session.Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}

func (w *runWriter) denied() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

func (w *runWriter) answer(text string) {
	if !w.flags.json {
		fmt.Fprintln(w.e.stdout, lines(text))
	}
}

// lines is text of several lines with hidden characters escaped.
func lines(text string) string {
	var out []string
	for l := range strings.SplitSeq(text, "\n") {
		out = append(out, foreign(l, true))
	}
	return strings.Join(out, "\n")
}

func (w *runWriter) finish(outcome string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.emit("run.finished", map[string]any{"outcome": outcome, "denied": w.refused})
}
