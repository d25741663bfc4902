// Package outputshape is the first-party guard that lets an answer, or a tool's
// result, pass only if it is exactly one JSON document that fits the operator's
// schema. It repairs nothing: a denial can be seen, a guess cannot.
package outputshape

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say what must have which shape.
type Settings struct {
	For      string         `json:"for" doc:"answer: the final answer of an agent, the text without thoughts; else the name of a tool, whose result is judged"`
	Schema   map[string]any `json:"schema" doc:"JSON Schema; keywords that are not known are refused"`
	MaxBytes int            `json:"max_bytes,omitempty" doc:"longest document" min:"1" max:"1048576" default:"65536"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "output-shape", Phases: []guest.Phase{guest.PhaseResponse, guest.PhaseResult}, Check: Check, Judge: Judge}
}

// Check refuses a schema that cannot be held.
func Check(s Settings) error {
	var errs []error
	if s.For != "answer" && !views.ValidPattern(s.For) {
		errs = append(errs, fmt.Errorf("for %q: want answer, or the name of a tool", s.For))
	}
	root, err := normal(s.Schema)
	if err == nil {
		err = (&schema{root: root}).check(root, "", 0)
	}
	return errors.Join(append(errs, err)...)
}

// heldChars is the longest answer that a stream can keep back until it is whole.
const heldChars = 8192

// Judge judges one response or result.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	var text string
	switch {
	case q.Phase == guest.PhaseResult:
		if !views.Covers(s.For, q.Tool.Name) || s.For == "answer" {
			return guest.Allow()
		}
		raw, err := q.Result.MarshalJSON()
		if err != nil {
			panic(err) // which denies; the host never asks about what is no JSON
		}
		text = string(raw)
	case s.For != "answer" || q.Response.ErrorCode != "":
		return guest.Allow()
	default:
		var said strings.Builder
		spoken := false
		for _, p := range q.Response.Parts {
			if p.FunctionCall != nil && !q.Response.Partial {
				return guest.Allow() // not the final answer
			}
			if !p.Thought && p.FunctionCall == nil && p.FunctionResponse == nil {
				said.WriteString(p.Text)
				spoken = true
			}
		}
		if text = said.String(); q.Response.Partial {
			n := utf8.RuneCountInString(text)
			if n > heldChars {
				return guest.Deny("too_long", "the answer is too long to be held back until it is whole; ask for it without streaming", guest.Why{Rule: "stream", Saw: fmt.Sprint(n)})
			}
			return guest.AllowBut(n)
		}
		if !spoken && q.Response.Role == "" && len(q.Response.Parts) == 0 {
			return guest.Allow() // it says nothing, such as the end of a turn
		}
	}
	if len(text) > s.MaxBytes {
		return guest.Deny("too_long", "the document is longer than allowed", guest.Why{Rule: "max_bytes", Saw: fmt.Sprint(len(text))})
	}
	doc, code := parse(text)
	switch code {
	case "duplicate_key":
		return guest.Deny(code, "a name is there twice in one object", guest.Why{Rule: code})
	case "not_json":
		return guest.Deny(code, "that must be one JSON document and nothing else", guest.Why{Rule: code})
	}
	root, err := normal(s.Schema)
	if err != nil {
		panic(err) // which denies; Check has read it
	}
	if at, wrong := (&schema{root: root}).fits(root, doc, "", 0); wrong != "" {
		return guest.Deny("schema", "the document does not fit its schema", guest.Why{Rule: wrong, At: at})
	}
	return guest.Allow()
}
