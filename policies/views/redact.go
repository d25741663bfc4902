package views

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Span is a part of a text that a guard replaces.
type Span struct {
	From, To int // bytes
	Label    string
}

// Replace returns a text with its spans replaced by their labels; of spans that
// overlap all is replaced by the label of the first.
func Replace(text string, spans []Span) string {
	var b strings.Builder
	at := 0
	for _, s := range disjoint(spans) {
		b.WriteString(text[at:s.From])
		b.WriteString(s.Label)
		at = s.To
	}
	b.WriteString(text[at:])
	return b.String()
}

// disjoint sorts spans and joins those that overlap.
func disjoint(spans []Span) []Span {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b Span) int { return a.From - b.From })
	var out []Span
	for _, s := range spans {
		if n := len(out); n > 0 && s.From < out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Held returns how many characters of Replace(text, spans) stand for what begins at
// byte from of text, or at a span that reaches behind it.
func Held(text string, spans []Span, from int) int {
	for _, s := range disjoint(spans) {
		if s.To > from {
			from = min(from, s.From)
			break
		}
	}
	kept := slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.To > from })
	return utf8.RuneCountInString(Replace(text, spans)) - utf8.RuneCountInString(Replace(text[:from], kept))
}

// A Redactor replaces parts of the texts of a document.
type Redactor struct {
	Find    func(text string) ([]Span, error) // what to replace in a text
	Skip    func(at string) bool              // places that are left as they are; may be nil
	Changed bool                              // something was replaced
}

// Value returns a generic value with every text, name and number as Find wants it. In
// texts that are JSON themselves it looks inside. An error of Find ends it.
func (r *Redactor) Value(v any) (any, error) { return r.value(v, "", 0) }

func (r *Redactor) value(v any, at string, depth int) (any, error) {
	if r.Skip != nil && r.Skip(at) {
		return v, nil
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			here := at + "/" + Escape(key)
			inner, err := r.value(v[key], here, depth)
			if err != nil {
				return nil, err
			}
			name := key
			if r.Skip == nil || !r.Skip(here) {
				if name, err = r.text(key); err != nil {
					return nil, err
				}
			}
			for n, base := 2, name; ; n++ { // two names may come to look the same
				if _, taken := out[name]; !taken {
					break
				}
				name = fmt.Sprintf("%s (%d)", base, n)
			}
			out[name] = inner
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = r.value(e, fmt.Sprintf("%s/%d", at, i), depth); err != nil {
				return nil, err
			}
		}
		return out, nil
	case json.Number:
		text, err := r.text(string(v))
		if err != nil || text == string(v) {
			return v, err
		}
		return text, nil
	case string:
		if depth < maxNested {
			if inner, ok := Nested(v); ok {
				within := &Redactor{Find: r.Find}
				clean, err := within.value(inner, "", depth+1)
				if err != nil {
					return nil, err
				}
				if within.Changed {
					data, err := json.Marshal(clean)
					if err != nil {
						return nil, err
					}
					r.Changed = true
					v = string(data)
				}
			}
		}
		return r.text(v)
	}
	return v, nil
}

func (r *Redactor) text(text string) (string, error) {
	spans, err := r.Find(text)
	if err != nil || len(spans) == 0 {
		return text, err
	}
	r.Changed = true
	return Replace(text, spans), nil
}

// JoinParts joins neighbouring texts of the parts of a response, as [Tree] returns
// it, so that nothing hides in the seam. It returns the last part, if that is a text.
func JoinParts(response any) (last string, ok bool) {
	object, _ := response.(map[string]any)
	content, _ := object["content"].(map[string]any)
	parts, _ := content["parts"].([]any)
	var joined []any
	for _, p := range parts {
		text, thought, plain := plainText(p)
		if n := len(joined); n > 0 && plain {
			if before, same, was := plainText(joined[n-1]); was && same == thought {
				joined[n-1].(map[string]any)["text"] = before + text
				continue
			}
		}
		joined = append(joined, p)
	}
	if joined == nil {
		return "", false
	}
	content["parts"] = joined
	last, _, ok = plainText(joined[len(joined)-1])
	return last, ok
}

// plainText returns the text of a part that has nothing else.
func plainText(part any) (text string, thought, ok bool) {
	p, _ := part.(map[string]any)
	if text, ok = p["text"].(string); !ok {
		return "", false, false
	}
	for name, value := range p {
		switch name {
		case "text":
		case "thought":
			thought = value == true
		default:
			return "", false, false
		}
	}
	return text, thought, true
}

// SkipCalls is a Skip for responses: calls are judged as calls, and the rest of what
// is left out is the model's own.
func SkipCalls(at string) bool {
	switch at {
	case "/content/role", "/finishReason", "/usageMetadata", "/partial", "/turnComplete", "/interrupted":
		return true
	}
	return strings.HasPrefix(at, "/content/parts/") && (strings.HasSuffix(at, "/functionCall") || strings.HasSuffix(at, "/functionResponse") || strings.HasSuffix(at, "/thoughtSignature"))
}

// CodedTail returns where a run at the end of a text begins that may be the beginning
// of a code, len(text) if there is none; it looks at most characters.
func CodedTail(text string, most int) int {
	start := len(text)
	for start > 0 && len(text)-start < most && (Coded(text[start-1]) || text[start-1] == '%') {
		start--
	}
	if len(text)-start < minRun && !strings.Contains(text[start:], "%") {
		return len(text)
	}
	return start
}
