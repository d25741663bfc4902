// Words is the guard of the scripts: it denies, or masks, what contains a word.
package main

import (
	"encoding/json"
	"slices"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	phases := []guest.Phase{guest.PhaseMessage, guest.PhaseRequest, guest.PhaseResponse, guest.PhaseCall, guest.PhaseResult}
	guest.Serve(guest.Plugin{
		Name: "words", Version: "1.0.0",
		Exports: []guest.Export{
			guest.Guard[Settings]{Name: "words", Phases: phases, Judge: judge},
			guest.Guard[Settings]{Name: "mask", Phases: phases, Mutates: phases, Judge: mask},
		},
	})
}

func main() {}

// Settings name a word and where it is looked for.
type Settings struct {
	Word   string   `json:"word" doc:"what nobody may say"`
	Phases []string `json:"phases" doc:"where it is looked for"`
}

func judge(q *guest.Question, s Settings) guest.Verdict {
	if !slices.Contains(s.Phases, string(q.Phase)) {
		return guest.Allow()
	}
	if strings.Contains(text(q), s.Word) {
		return guest.Deny("word", "that word is not said here", guest.Why{Rule: "word", Saw: string(q.Phase)})
	}
	return guest.AllowBut(held(q, s))
}

func mask(q *guest.Question, s Settings) guest.Verdict {
	doc := text(q)
	if !slices.Contains(s.Phases, string(q.Phase)) {
		return guest.Allow()
	}
	if !strings.Contains(doc, s.Word) {
		return guest.AllowBut(held(q, s))
	}
	v := guest.Rewrite(json.RawMessage(strings.ReplaceAll(doc, s.Word, "***")))
	v.Hold = held(q, s)
	return v
}

// text is the judged document.
func text(q *guest.Question) string {
	var doc any
	switch q.Phase {
	case guest.PhaseMessage:
		doc = q.Message
	case guest.PhaseRequest:
		doc = q.Request
	case guest.PhaseResponse:
		doc = q.Response
	case guest.PhaseCall:
		doc = q.Args
	case guest.PhaseResult:
		doc = q.Result
	}
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// held is how much of the end of a stream may be the beginning of the word.
func held(q *guest.Question, s Settings) int {
	if q.Phase != guest.PhaseResponse {
		return 0
	}
	said := q.Response.Text()
	for n := min(len(s.Word)-1, len(said)); n > 0; n-- {
		if strings.HasSuffix(said, s.Word[:n]) {
			return n
		}
	}
	return 0
}
