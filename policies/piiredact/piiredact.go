// Package piiredact is the first-party guard that takes personal data out of results
// and responses. A label takes its place, the same one for the same value all through
// a run, so that a model can still tell people apart.
package piiredact

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say what is taken out.
type Settings struct {
	Kinds    []string          `json:"kinds,omitempty" doc:"what is taken out; cards need a Luhn sum and IBANs their checksum, so order numbers stay" enum:"email,phone,card,iban,ip"`
	Patterns map[string]string `json:"patterns,omitempty" doc:"regular expressions of more kinds, by name" max:"32"`
	Keep     []string          `json:"keep,omitempty" doc:"JSON pointers to what is left as it is, in a result or a response"`
	Style    string            `json:"style,omitempty" doc:"what a label has beside its kind: a number, or the beginning of a hash, which needs no kv" enum:"number,hash" default:"number"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	phases := []guest.Phase{guest.PhaseResponse, guest.PhaseResult}
	return guest.Guard[Settings]{Name: "pii-redact", Phases: phases, Mutates: phases, Check: Check, Judge: Judge}
}

// Check refuses expressions that are none, and settings that take nothing out.
func Check(s Settings) error {
	var errs []error
	if len(s.Kinds)+len(s.Patterns) == 0 {
		errs = append(errs, errors.New("want kinds or patterns"))
	}
	errs = append(errs, views.CheckPatterns(s.Patterns))
	for _, p := range s.Keep {
		if !strings.HasPrefix(p, "/") {
			errs = append(errs, fmt.Errorf("keep %q: want a JSON pointer, such as /id", p))
		}
	}
	return errors.Join(errs...)
}

// maxHeld is how many characters of a stream may wait.
const maxHeld = 256

// Judge judges one result or response.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	document := views.Tree(q.Judged())
	f := &finder{q: q, s: s, labels: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(s.Patterns)) {
		f.patterns = append(f.patterns, pattern{name, regexp.MustCompile(s.Patterns[name])}) // Check has compiled it
	}
	r := &views.Redactor{Skip: func(at string) bool {
		return q.Phase == guest.PhaseResponse && views.SkipCalls(at) || slices.Contains(s.Keep, at)
	}}
	last, from := "", 0
	partial := q.Phase == guest.PhaseResponse && q.Response.Partial
	if q.Phase == guest.PhaseResponse {
		var isText bool
		last, isText = views.JoinParts(document)
		partial = partial && isText
	}
	if partial {
		from = f.tail(last)
	}
	r.Find = func(text string) ([]views.Span, error) {
		if partial && text == last {
			return f.find(text, from)
		}
		return f.find(text, len(text))
	}
	clean, err := r.Value(document)
	if f.kv != nil {
		return views.Unavailable(f.kv)
	}
	if err != nil {
		return guest.Deny("encoding", "a text is encoded too often")
	}
	v := guest.Allow()
	if r.Changed {
		v = guest.Rewrite(clean)
		v.Code = "redacted"
	}
	if partial {
		spans, err := f.find(last, from)
		if err != nil {
			panic(err) // which denies; the document has been read without
		}
		v.Hold = views.Held(last, spans, from)
	}
	return v
}

// tail returns where at the end of a text something may begin that is not whole.
func (f *finder) tail(text string) int {
	from := min(f.s.tail(text), views.CodedTail(text, maxHeld))
	for _, p := range f.patterns {
		if begins, err := views.NewBeginning(p.re.String()); err == nil {
			from = min(from, begins.At(text, maxHeld))
		}
	}
	return from
}

// tail returns where at the end of a text something may begin that is not whole: the
// last word for addresses, else the words at the end that have digits.
func (s *Settings) tail(text string) int {
	end := len(text)
	from := end
	for first := true; end > 0 && len(text)-end < maxHeld; first = false {
		start := strings.LastIndexAny(text[:end], " \t\r\n\u00a0") + 1
		word := text[start:end]
		words := slices.Contains(s.Kinds, "email") || slices.Contains(s.Kinds, "iban") || slices.Contains(s.Kinds, "ip")
		if word != "" && !strings.ContainsAny(word, "0123456789") && strings.IndexFunc(word, isDigit) < 0 && (!first || !words) {
			break
		}
		if len(s.Kinds) > 0 && word != "" {
			from = start
		}
		end = max(start-1, 0)
		if start == 0 {
			break
		}
	}
	return max(from, len(text)-4*maxHeld)
}

// A finder finds personal data in texts.
type finder struct {
	q        *guest.Question
	s        Settings
	patterns []pattern
	labels   map[string]string // by kind and value
	kv       error             // kv failed
}

type pattern struct {
	name string
	re   *regexp.Regexp
}

// find returns where in a text something is to be taken out, in any view. What
// reaches behind a place may be longer than it is so far: nobody will see its label,
// and it gets none of its own.
func (f *finder) find(text string, whole int) ([]views.Span, error) {
	var spans []views.Span
	_, err := views.Texts(text, func(v views.View) bool {
		add := func(kind, value string, from, to int) {
			from, to = v.Span(from, to)
			label := "[" + kind + "]"
			if to <= whole {
				label = f.label(kind, value)
			}
			spans = append(spans, views.Span{From: from, To: to, Label: label})
		}
		for _, p := range f.patterns {
			for _, m := range p.re.FindAllStringIndex(v.Text, -1) {
				if m[0] < m[1] {
					add(p.name, v.Text[m[0]:m[1]], m[0], m[1])
				}
			}
		}
		for _, kind := range f.s.Kinds {
			finders[kind](v.Text, func(value string, from, to int) { add(kind, value, from, to) })
		}
		return f.kv == nil
	})
	return spans, err
}

// label returns what takes the place of a value.
func (f *finder) label(kind, value string) string {
	key := views.Key(f.q.User.ID, f.q.Session, f.q.Run, kind, value)
	if known, there := f.labels[key]; there {
		return known
	}
	mark := key[:8]
	if f.s.Style != "hash" {
		n, err := f.number(kind, key)
		if err != nil {
			f.kv = err
			return ""
		}
		mark = fmt.Sprint(n)
	}
	f.labels[key] = fmt.Sprintf("[%s %s]", kind, mark)
	return f.labels[key]
}

// ttl is longer than a run.
const ttl = 7 * 24 * time.Hour

// number returns the number of a value in the run.
func (f *finder) number(kind, key string) (n int64, err error) {
	found, err := f.q.KV().Get(key, &n)
	if err != nil || found {
		return n, err
	}
	if n, _, err = f.q.KV().Add(views.Key(f.q.User.ID, f.q.Session, f.q.Run, kind), 1, 1_000_000, ttl); err != nil {
		return 0, err
	}
	return n, f.q.KV().Set(key, n, ttl)
}
