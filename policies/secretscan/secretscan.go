// Package secretscan is the first-party guard that keeps keys and tokens in: a call
// with one is refused, and in results and responses a label takes its place. It finds
// what has the form of a secret, and what the host knows to be one. A guest that
// encrypts what it sends beats it.
package secretscan

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say what else is a secret.
type Settings struct {
	Patterns map[string]string `json:"patterns,omitempty" doc:"regular expressions by name, beside the built-in ones" max:"32"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "secret-scan", Phases: []guest.Phase{guest.PhaseResponse, guest.PhaseCall, guest.PhaseResult},
		Mutates: []guest.Phase{guest.PhaseResponse, guest.PhaseResult}, Check: Check, Judge: Judge}
}

// Check refuses expressions that are none, or that match nothing at all.
func Check(s Settings) error { return views.CheckPatterns(s.Patterns) }

// A form is what some secrets look like.
type form struct {
	name    string
	literal string // what every match has in it; saves looking
	re      *regexp.Regexp
	begins  *views.Beginning
}

func newForm(name, literal, expr string) form {
	return form{name, literal, regexp.MustCompile(expr), beginning(expr)}
}

func beginning(expr string) *views.Beginning {
	b, err := views.NewBeginning(expr)
	if err != nil {
		panic(err) // the expression was compiled before
	}
	return b
}

// forms are compiled when the module starts, and so once.
var forms = []form{
	newForm("aws", "IA", `(?:AKIA|ASIA)[0-9A-Z]{16}`),
	newForm("github", "gh", `gh[pousr]_[0-9A-Za-z]{36,255}`),
	newForm("github", "github_pat_", `github_pat_[0-9A-Za-z_]{22,255}`),
	newForm("gitlab", "glpat-", `glpat-[0-9A-Za-z_\-]{20,64}`),
	newForm("slack", "xox", `xox[abeprs]-[0-9A-Za-z\-]{10,250}`),
	newForm("google", "AIza", `AIza[0-9A-Za-z_\-]{35}`),
	newForm("stripe", "k_", `[sr]k_(?:live|test)_[0-9A-Za-z]{16,128}`),
	newForm("sk", "sk-", `sk-[0-9A-Za-z_\-]{20,200}`),
	newForm("npm", "npm_", `npm_[0-9A-Za-z]{36}`),
	newForm("jwt", "eyJ", `eyJ[0-9A-Za-z_\-]{8,}\.eyJ[0-9A-Za-z_\-]{8,}(?:\.[0-9A-Za-z_\-]*)?`),
	newForm("pem", "PRIVATE KEY-----", `-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|.*)`),
}

// maxHeld is how many characters of a stream may wait for the rest of a secret. A
// longer one is noticed when it is whole.
const maxHeld = 256

// Judge judges one call, result or response.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	document := views.Tree(q.Judged())
	all := slices.Clone(forms)
	for _, name := range slices.Sorted(maps.Keys(s.Patterns)) {
		f := form{name: name, re: regexp.MustCompile(s.Patterns[name])} // Check has compiled it
		f.literal, _ = f.re.LiteralPrefix()
		if q.Phase == guest.PhaseResponse && q.Response.Partial {
			f.begins = beginning(s.Patterns[name])
		}
		all = append(all, f)
	}
	if q.Phase == guest.PhaseCall {
		return judgeCall(q, document, all)
	}
	hidden := map[place]string{}
	for _, h := range q.Facts.SecretHits {
		hidden[place{h.At, h.Key}] = mark(h.Name)
	}
	r := &views.Redactor{Find: func(text string) ([]views.Span, error) { return find(text, all) }}
	last, isText := "", false
	if q.Phase == guest.PhaseResponse {
		r.Skip = views.SkipCalls
		replaceAt(document, "", hidden, &r.Changed) // places are those of the parts as they came
		last, isText = views.JoinParts(document)
	} else {
		document = replaceAt(document, "", hidden, &r.Changed)
	}
	clean, err := r.Value(document)
	if err != nil {
		return guest.Deny("encoding", "a text is encoded too often")
	}
	v := guest.Allow()
	if r.Changed {
		v = guest.Rewrite(clean)
		v.Code = "secret"
	}
	if isText && q.Response.Partial {
		spans, err := find(last, all)
		if err != nil {
			panic(err) // which denies; the document has been read without
		}
		from := views.CodedTail(last, maxHeld)
		for _, f := range all {
			if f.name == "pem" && len(spans) > 0 {
				continue // what follows its beginning is gone already
			}
			from = min(from, f.begins.At(last, maxHeld))
		}
		v.Hold = views.Held(last, spans, from)
	}
	return v
}

func judgeCall(q *guest.Question, args any, all []form) guest.Verdict {
	deny := func(name, at string) guest.Verdict {
		return guest.Deny("secret_in_call", "a secret may not be an argument", guest.Why{Rule: name, At: at})
	}
	if hits := q.Facts.SecretHits; len(hits) > 0 {
		return deny(hits[0].Name, hits[0].At)
	}
	name := ""
	at, err := views.Each(args, func(_ views.Leaf, v views.View) bool {
		for _, f := range all {
			if len(f.in(v.Text)) > 0 {
				name = f.name
				return false
			}
		}
		return true
	})
	switch {
	case err != nil:
		return guest.Deny("encoding", "an argument is encoded too often", guest.Why{Rule: "encoding", At: at})
	case name != "":
		return deny(name, at)
	}
	return guest.Allow()
}

func mark(name string) string { return "[secret " + name + "]" }

// find returns where in a text secrets stand, in any view.
func find(text string, all []form) ([]views.Span, error) {
	var spans []views.Span
	_, err := views.Texts(text, func(v views.View) bool {
		for _, f := range all {
			for _, m := range f.in(v.Text) {
				from, to := v.Span(m[0], m[1])
				spans = append(spans, views.Span{From: from, To: to, Label: mark(f.name)})
			}
		}
		return true
	})
	return spans, err
}

// harmless are forms of what is no secret, whatever a pattern says.
var harmless = regexp.MustCompile(`^(?i:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$`)

// in returns the matches in one view.
func (f *form) in(text string) [][]int {
	if f.literal != "" && !strings.Contains(text, f.literal) {
		return nil
	}
	return slices.DeleteFunc(f.re.FindAllStringIndex(text, -1), func(m []int) bool {
		return m[0] == m[1] || harmless.MatchString(text[m[0]:m[1]])
	})
}

// A place is where the host has found a secret.
type place struct {
	at  string
	key bool // in the name of the member there
}

// replaceAt replaces the texts and names at places.
func replaceAt(v any, at string, labels map[place]string, changed *bool) any {
	if len(labels) == 0 {
		return v
	}
	if label, hit := labels[place{at, false}]; hit {
		*changed = true
		return label
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			here := at + "/" + views.Escape(name)
			inner := replaceAt(v[name], here, labels, changed)
			if label, hit := labels[place{here, true}]; hit {
				delete(v, name)
				name, *changed = label, true
			}
			v[name] = inner
		}
	case []any:
		for i := range v {
			v[i] = replaceAt(v[i], fmt.Sprintf("%s/%d", at, i), labels, changed)
		}
	}
	return v
}
