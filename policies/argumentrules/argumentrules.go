// Package argumentrules is the first-party guard that bounds single arguments of
// tools: a path stays below a folder, a text has or has not a form, a host, a choice
// or a number is one of a list.
package argumentrules

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings are the rules. A call that no rule speaks of is allowed.
type Settings struct {
	Rules []Rule `json:"rules" doc:"every rule that speaks of the tool must hold" max:"256"`
}

// A Rule bounds one argument of a tool.
type Rule struct {
	Tool    string   `json:"tool" doc:"name of the tool; * stands for any letters, digits, _ and -"`
	At      string   `json:"at" doc:"JSON pointer to the argument; the step * is every item of a list"`
	As      string   `json:"as" doc:"what the argument is" enum:"path,text,host,enum,number"`
	Under   []string `json:"under,omitempty" doc:"path: the folders it must be in, absolute"`
	BaseDir string   `json:"base_dir,omitempty" doc:"path: the folder that relative ones start from; default the first of under"`
	Allow   []string `json:"allow,omitempty" doc:"path: globs; text: regular expressions that must match all of it; host: patterns; enum: values; number: LOW..HIGH or a number"`
	Deny    []string `json:"deny,omitempty" doc:"likewise, for what is refused, with all that is below a folder; an expression need match only a part"`
	Fold    bool     `json:"fold,omitempty" doc:"path: case counts for nothing"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "argument-rules", Phases: []guest.Phase{guest.PhaseCall}, Check: Check, Judge: Judge}
}

// Check refuses rules that cannot hold or say nothing.
func Check(s Settings) error {
	var errs []error
	for i, r := range s.Rules {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("rules[%d]: "+format, append([]any{i}, args...)...))
		}
		if !views.ValidPattern(r.Tool) {
			bad("tool %q: want a name of ASCII letters, digits, _, - and *", r.Tool)
		}
		if r.At != "" && !strings.HasPrefix(r.At, "/") {
			bad("at %q: want a JSON pointer, such as /path", r.At)
		}
		if r.As != "path" && (r.Under != nil || r.BaseDir != "" || r.Fold) {
			bad("under, base_dir and fold are for as: path")
		}
		switch {
		case r.As == "path":
			if len(r.Under) == 0 {
				bad("under: want the folders the path may be in")
			}
			for _, dir := range append(slices.Clone(r.Under), r.base()) {
				if clean, finding := clean(dir, "/"); finding != "" || !strings.HasPrefix(dir, "/") || dir != "/" && "/"+strings.Join(clean, "/") != dir {
					bad("folder %q: want an absolute path in its shortest form", dir)
				}
			}
		case r.Allow == nil && (r.Deny == nil || r.As == "host" || r.As == "enum"):
			bad("allow is missing: nothing would be allowed, or everything")
		}
		for _, p := range slices.Concat(r.Allow, r.Deny) {
			switch r.As {
			case "text":
				if _, err := regexp.Compile(p); err != nil {
					bad("%v", err)
				}
			case "number":
				if _, _, err := span(p); err != nil {
					bad("%q: want LOW..HIGH or a number", p)
				}
			case "host":
				if p != strings.ToLower(p) || strings.ContainsAny(p, ":/ ") {
					bad("host %q: want a lower-case name, *.name or **.name", p)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Judge judges one call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	var args any
	for i, r := range s.Rules {
		if !views.Covers(r.Tool, q.Tool.Name) {
			continue
		}
		if args == nil {
			args = views.Tree(q.Args)
		}
		if f := r.each(args, steps(r.At), ""); f != nil {
			return guest.Deny(f.code, f.reason, guest.Why{Rule: fmt.Sprintf("rules[%d]", i), At: f.at})
		}
	}
	return guest.Allow()
}

// A finding says which value broke a rule, and how.
type finding struct{ code, reason, at string }

// each judges every value that the steps lead to.
func (r *Rule) each(v any, steps []string, at string) *finding {
	if len(steps) == 0 {
		return r.value(v, at)
	}
	missing := &finding{"bad_argument", "an argument that a rule needs is missing or has the wrong form", at + "/" + views.Escape(steps[0])}
	if steps[0] == "*" {
		list, ok := v.([]any)
		if !ok {
			return missing
		}
		for i, e := range list {
			if f := r.each(e, steps[1:], fmt.Sprintf("%s/%d", at, i)); f != nil {
				return f
			}
		}
		return nil
	}
	object, ok := v.(map[string]any)
	if !ok {
		return missing
	}
	inner, ok := object[steps[0]]
	if !ok {
		return missing
	}
	return r.each(inner, steps[1:], at+"/"+views.Escape(steps[0]))
}

func (r *Rule) value(v any, at string) *finding {
	bad := func(code, reason string) *finding { return &finding{code, reason, at} }
	if r.As == "number" {
		return r.number(v, bad)
	}
	text, ok := v.(string)
	if !ok {
		return bad("bad_argument", "an argument that must be text is none")
	}
	switch r.As {
	case "path":
		return r.path(text, bad)
	case "host":
		return r.host(text, bad)
	case "enum":
		if !slices.Contains(r.Allow, text) || slices.Contains(r.Deny, text) {
			return bad("not_allowed", "that value is not one of those that are allowed")
		}
		return nil
	}
	return r.text(text, bad)
}

func (r *Rule) text(text string, bad func(code, reason string) *finding) *finding {
	var denied, allowed []*regexp.Regexp
	for _, p := range r.Deny {
		denied = append(denied, regexp.MustCompile(p)) // Check has compiled it
	}
	for _, p := range r.Allow {
		allowed = append(allowed, regexp.MustCompile(`\A(?:`+p+`)\z`))
	}
	fine, err := views.Texts(text, func(v views.View) bool {
		matches := func(re *regexp.Regexp) bool { return re.MatchString(v.Text) }
		return !slices.ContainsFunc(denied, matches) && (r.Allow == nil || slices.ContainsFunc(allowed, matches))
	})
	switch {
	case err != nil:
		return bad("encoding", "an argument is encoded too often")
	case !fine:
		return bad("pattern", "an argument has a form that is not allowed")
	}
	return nil
}

func (r *Rule) host(text string, bad func(code, reason string) *finding) *finding {
	if rest, ok := strings.CutPrefix(text, "https://"); ok {
		text, _, _ = strings.Cut(rest, "/")
	}
	host := strings.TrimSuffix(strings.ToLower(text), ".")
	for i := range len(host) {
		if c := host[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.') {
			return bad("host_form", "an argument is no plain host name")
		}
	}
	on := func(list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool { return hostMatches(p, host) })
	}
	if !on(r.Allow) || on(r.Deny) {
		return bad("host_not_listed", "that host is not on the list of allowed hosts")
	}
	return nil
}

// hostMatches reports whether a pattern allows a host: exactly, "*." one more label,
// "**." one or more.
func hostMatches(pattern, host string) bool {
	if rest, ok := strings.CutPrefix(pattern, "**"); ok {
		return strings.HasSuffix(host, rest) && len(host) > len(rest) && host[0] != '.'
	}
	if rest, ok := strings.CutPrefix(pattern, "*"); ok {
		label, ok := strings.CutSuffix(host, rest)
		return ok && label != "" && !strings.Contains(label, ".")
	}
	return pattern == host
}

func (r *Rule) number(v any, bad func(code, reason string) *finding) *finding {
	n, ok := v.(json.Number)
	if !ok {
		return bad("bad_argument", "an argument that must be a number is none")
	}
	d, err := guest.ParseDecimal(string(n))
	if err != nil {
		return bad("bad_argument", "an argument that must be a number is none")
	}
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool {
			low, high, err := span(p)
			return err == nil && d.Cmp(low) >= 0 && d.Cmp(high) <= 0
		})
	}
	if r.Allow != nil && !in(r.Allow) || in(r.Deny) {
		return bad("not_allowed", "that number is outside of what is allowed")
	}
	return nil
}

// span reads LOW..HIGH or one number.
func span(text string) (low, high guest.Decimal, err error) {
	from, to, ok := strings.Cut(text, "..")
	if !ok {
		to = from
	}
	if low, err = guest.ParseDecimal(from); err == nil {
		high, err = guest.ParseDecimal(to)
	}
	if err == nil && low.Cmp(high) > 0 {
		err = errors.New("low exceeds high")
	}
	return low, high, err
}

// steps splits a JSON pointer.
func steps(pointer string) []string {
	if pointer == "" {
		return nil
	}
	out := strings.Split(pointer[1:], "/")
	for i, s := range out {
		out[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return out
}
