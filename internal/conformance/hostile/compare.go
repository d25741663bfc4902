package hostile

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// differ returns how got exceeds most, as one phrase, or nothing.
func differ[T int | int64](what string, got, most T) string {
	if got <= most {
		return ""
	}
	return fmt.Sprintf("%s: %d, at most %d; ", what, got, most)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// outcome says whether a code is expected.
func (e *expectation) outcome(want outcomes, got abi.Code, text string) string {
	if len(want) == 0 {
		want = e.Outcome
	}
	if slices.Contains(want, got) {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("outcome %s, want %s: %s", got, join(want), cut(text)), ": ")
}

func join(codes outcomes) string {
	var words []string
	for _, c := range codes {
		words = append(words, string(c))
	}
	return strings.Join(words, " or ")
}

// answer compares the result of a call that succeeded.
func (e *expectation) answer(a *attempt, want json.RawMessage) string {
	if len(want) == 0 {
		want = e.Output
	}
	if len(want) > 0 {
		expected, err := decoded(want, a.number)
		if err != nil {
			return err.Error()
		}
		if !equal(a.response, expected) {
			return fmt.Sprintf("output %s, want %s", show(a.response), show(expected))
		}
	}
	texts := e.OutputTextAny
	if e.OutputText != "" {
		texts = []string{e.OutputText}
	}
	if len(texts) == 0 {
		return ""
	}
	got, err := abi.Marshal(a.response)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(texts, string(got)) {
		return fmt.Sprintf("output text %s, want %s", cut(string(got)), strings.Join(texts, " or "))
	}
	return ""
}

// A text that a model reads must not tell where things are in the host.
var internals = regexp.MustCompile(`0x[0-9a-f]{6}|goroutine \d|\.go:\d|wasm stack trace|(^|\s)/[a-z]+/`)

// shown checks what the model reads of a failed call.
func (e *expectation) shown(a *attempt) string {
	if m := internals.FindString(a.text); m != "" {
		return fmt.Sprintf("the error has %q: %s", m, cut(a.text))
	}
	if n := utf8.RuneCountInString(a.text); e.ErrorCharsMax > 0 && n > e.ErrorCharsMax {
		return fmt.Sprintf("the error has %d characters, at most %d", n, e.ErrorCharsMax)
	}
	if e.Reason != "" && !strings.Contains(a.text, e.Reason) {
		return fmt.Sprintf("the error %q lacks %q", cut(a.text), e.Reason)
	}
	if e.NoActions && a.actions != "{}" {
		return "the event has actions " + cut(a.actions)
	}
	return ""
}

// logged compares what was kept of the guest's log.
func (e *expectation) logged(l *logs) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken != "":
		return fmt.Sprintf("a log record is not one plain line: %q", cut(l.broken))
	case e.LogBytesMax != nil && l.bytes > *e.LogBytesMax:
		return fmt.Sprintf("%d bytes of log, at most %d", l.bytes, *e.LogBytesMax)
	case e.LogRecords != nil && l.records != *e.LogRecords:
		return fmt.Sprintf("%d log records, want %d", l.records, *e.LogRecords)
	}
	return ""
}

// actions are our names for the audit records of the corpus.
var actions = map[string][]string{
	"module.reject":     {"module.reject"},
	"guard.deny":        {"guard.deny", "guard.confirm"}, // whatever stopped the call
	"capability_denied": {"capability.denied"},
}

// audited looks for the records that must exist.
func (e *expectation) audited(seen []string) string {
	for _, want := range e.Audit {
		names := actions[want]
		if names == nil {
			return fmt.Sprintf("audit record %s has no name here", want)
		}
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(seen, name) }) {
			return fmt.Sprintf("no audit record %s", strings.Join(names, " or "))
		}
	}
	return ""
}

// equal compares JSON values, numbers by value.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, x := range a {
			y, ok := b[key]
			if !ok || !equal(x, y) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	}
	return reflect.DeepEqual(a, b)
}

// number reads a number of moderate length; others are compared as they are.
func number(v any) (*big.Rat, bool) {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case float64, int, int64:
		text = fmt.Sprint(v)
	default:
		return nil, false
	}
	if _, exponent, _ := strings.Cut(strings.ToLower(text), "e"); len(text) > 400 || len(exponent) > 4 {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return cut(string(data))
}

// cut shortens a text for a report.
func cut(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func oneLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '\n' || r == '\u2028' || r == '\u2029' || abi.Hidden(r)
	})
}
