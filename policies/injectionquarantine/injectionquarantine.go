// Package injectionquarantine is the first-party guard that puts what comes from
// outside behind a label, holds back what looks like orders to the assistant, and from
// then on has a person asked before tools that act. It does not claim to find every
// injection: the gain is what follows once one is suspected.
package injectionquarantine

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say whose results are not trusted, and what is done about them.
type Settings struct {
	From      []string `json:"from" doc:"names of the tools whose results are not trusted; * stands for any letters, digits, _ and -"`
	Threshold int64    `json:"threshold,omitempty" doc:"signs of an injection, of all results of a run together, from which on it is suspected" min:"1" max:"100" default:"2"`
	Action    string   `json:"action,omitempty" doc:"what becomes of a result with signs once one is suspected: its text is held back, or the result is refused" enum:"withhold,deny" default:"withhold"`
	ThenAsk   []string `json:"then_ask,omitempty" doc:"names of the tools for which a person is asked in the rest of the run"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "injection-quarantine", Phases: []guest.Phase{guest.PhaseResult, guest.PhaseCall},
		Mutates: []guest.Phase{guest.PhaseResult}, Check: Check, Judge: Judge}
}

// Check refuses names that no tool can have.
func Check(s Settings) error {
	var errs []error
	for where, tools := range map[string][]string{"from": s.From, "then_ask": s.ThenAsk} {
		for _, t := range tools {
			if !views.ValidPattern(t) {
				errs = append(errs, fmt.Errorf("%s: tool %q: want a name of ASCII letters, digits, _, - and *", where, t))
			}
		}
	}
	return errors.Join(errs...)
}

// signs are what orders to an assistant look like. Each counts once for a result.
var signs = []struct {
	name  string
	stems string // a match has one of these words in it; apart by blanks
	re    *regexp.Regexp
}{
	{"override", "ignore disregard forget override bypass", regexp.MustCompile(`(?i)\b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{0,40}\b(?:previous|prior|above|earlier|preceding|your|all|any|system|these|those)\b[^.!?\n]{0,30}\b(?:instructions?|rules?|prompts?|guidelines|policies|orders|directions?)\b`)},
	{"override", "ignor oublie olvida vergiss missachte glem игнорируй забудь 忽略 无视 忽視 無視", regexp.MustCompile(`(?i)\b(?:ignoriere|ignorera|ignorer|ignora|ignorez|oublie[zr]?|olvida|vergiss|missachte|glem|игнорируй(?:те)?|забудь(?:те)?)\b?[^.!?\n]{0,60}(?:anweisung|instru|instruk|regeln|règles|reglas|regole|consignes|инструкци|правил)|(?:忽略|无视|忽視|無視)[^。\n]{0,20}(?:指令|指示|说明|規則|规则)`)},
	{"identity", "you\u00a0are act behave respond mode instruction prompt rules", regexp.MustCompile(`(?i)\byou are (?:now|no longer)\b|\b(?:act|behave|respond) as (?:if you|an? (?:unrestricted|different)|root|admin)|\b(?:developer|god|jailbreak|dan) mode\b|\bnew (?:system )?(?:instructions?|prompt|rules)\s*:`)},
	{"role", "system assistant developer im_start im_end endoftext inst] <<sys [sys] [/sys] instruction", regexp.MustCompile(`(?im)(?:^|[\s>"'(\]])(?:system|assistant|developer)\s*:|<\|?(?:im_start|im_end|system|assistant|endoftext)\|?>|\[/?(?:INST|SYS)\]|<</?SYS>>|^#{1,4}\s*(?:system|assistant|instructions?)\b`)},
	{"call", "call invoke use run execute trigger tool_", regexp.MustCompile(`(?i)\b(?:call|invoke|use|run|execute|trigger)\s+(?:the\s+)?(?:tool\s+|function\s+)?['"\x60]?(?:[a-z0-9]+_[a-z0-9_]+\b|[a-z0-9_]+\s+(?:tool|function)\b)|</?(?:tool_call|function_call|tool_use|function_calls|invoke)\b|"(?:functionCall|function_call|tool_calls)"\s*:`)},
	{"exfiltration", "send post forward upload mail exfiltrate transmit leak append", regexp.MustCompile(`(?i)\b(?:send|post|forward|upload|e?mail|exfiltrate|transmit|leak|append)\b[^.!?\n]{0,80}(?:\bto\b[^.!?\n]{0,20}(?:https?:|www\.|[\w.+\-]+@\w)|\b(?:https?://|to (?:this|the following) (?:url|address)))`)},
	{"secrecy", "don't without do\u00a0not", regexp.MustCompile(`(?i)\bdo(?: not|n't) (?:tell|inform|mention|show|reveal|alert)\b[^.!?\n]{0,40}\b(?:user|human|anyone|anybody|operator|this)\b|\bwithout (?:telling|asking|informing|the user)`)},
}

// hidden is text that a reader of the page does not see.
var hidden = regexp.MustCompile(`(?is)<!--.*?-->|<[^>]*\b(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0)\b|\[//\]:\s*#`)

// Judge judges one result or call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	score := views.Key("score", q.User.ID, q.Session, q.Run)
	if q.Phase == guest.PhaseCall {
		if !views.AnyCovers(s.ThenAsk, q.Tool.Name) {
			return guest.Allow()
		}
		var total int64
		if _, err := q.KV().Get(score, &total); err != nil {
			return views.Unavailable(err)
		}
		if total < s.Threshold {
			return guest.Allow()
		}
		v := guest.Confirm(fmt.Sprintf("Something that was read in this run looks like orders to the assistant. Call %s?", q.Tool.Name), guest.Why{Rule: "after_suspicion", Saw: fmt.Sprint(total)})
		v.Code = "after_suspicion"
		return v
	}
	if !views.AnyCovers(s.From, q.Tool.Name) {
		return guest.Allow()
	}
	result := views.Tree(q.Result)
	found, why, err := look(result)
	if err != nil { // nobody hides so much in an honest text
		found = s.Threshold
		why = append(why, guest.Why{Rule: "encoding"})
	}
	var total int64
	if found > 0 {
		if total, _, err = q.KV().Add(score, found, 1_000_000, 7*24*time.Hour); err != nil {
			return views.Unavailable(err)
		}
	}
	if found == 0 || total < s.Threshold {
		return guest.Rewrite(map[string]any{"untrusted": true, "source": q.Tool.Name, "text": visible(text(result))})
	}
	if s.Action == "deny" {
		return guest.Deny("injection", "the result looks like orders to the assistant", why...)
	}
	v := guest.Rewrite(map[string]any{"untrusted": true, "source": q.Tool.Name, "withheld": "the text looks like orders to the assistant, so it is not shown"})
	v.Code, v.Why = "withheld", why[:min(len(why), 16)]
	return v
}

// look counts the signs in a result.
func look(result any) (found int64, why []guest.Why, err error) {
	seen := map[string]bool{}
	note := func(name, at string) {
		if !seen[name] {
			seen[name] = true
			found++
			why = append(why, guest.Why{Rule: name, At: at})
		}
	}
	_, err = views.Each(result, func(l views.Leaf, v views.View) bool {
		if len(v.Text) < 4 {
			return true
		}
		low := strings.ToLower(v.Text)
		read := func(text, low string) {
			for _, s := range signs {
				if !seen[s.name] && around(text, low, s.stems, s.re.MatchString) {
					note(s.name, l.At)
				}
			}
		}
		read(v.Text, low)
		if text, alike := latin(low); alike {
			read(text, text)
		}
		if around(v.Text, low, "<!-- display visibility font-size opacity [//]", hidden.MatchString) || strings.ContainsFunc(v.Text, tag) {
			note("hidden", l.At)
		}
		return true
	})
	return found, why, err
}

// latin returns a text in lower case with letters of other scripts as the Latin ones that they
// look like; false if there are none. It may be shorter.
func latin(text string) (string, bool) {
	if !strings.ContainsFunc(text, func(r rune) bool { return r != alike(r) }) {
		return "", false
	}
	return strings.Map(alike, text), true
}

// Small letters of other scripts, and the Latin ones that they look like.
var (
	foreign = []rune("авеёһіјкмнорсѕтухԁԛԝαεικνορτυχıɡɑ")
	plain   = []rune("abeehijkmhopcstyxdqwaeikvoptuxiga")
)

// alike returns the Latin letter that a small letter looks like, or else the letter.
func alike(r rune) rune {
	if r < utf8.RuneSelf {
		return r
	}
	if i := slices.Index(foreign, r); i >= 0 {
		return plain[i]
	}
	return r
}

// reach is how many bytes of a text around a word are looked at, and more than any
// sign spans.
const reach = 240

// around reports whether f is true of what stands around one of the stems in a text,
// whose lower-case form is low. Expressions are tried only there: at every character
// they would cost a guest more than it has.
func around(text, low, stems string, f func(string) bool) bool {
	if len(low) != len(text) {
		text = low // a character has another length in lower case; expressions ignore case
	}
	for stem := range strings.FieldsSeq(strings.ReplaceAll(stems, "\u00a0", "\x00")) {
		stem = strings.ReplaceAll(stem, "\x00", " ")
		for from := 0; ; {
			i := strings.Index(low[from:], stem)
			if i < 0 {
				break
			}
			at := from + i
			start, end := max(0, at-reach), min(len(text), at+len(stem)+reach)
			for start > 0 && !utf8.RuneStart(text[start]) {
				start--
			}
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end++
			}
			if f(text[start:end]) {
				return true
			}
			from = max(end-reach, at+len(stem)) // what is nearer was looked at
		}
	}
	return false
}

// tag reports whether a character carries text that nobody sees.
func tag(r rune) bool {
	return r >= 0xe0000 && r <= 0xe01ef || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200b || r == 0x2060
}

// text returns what a result says: its one text, or all of it as JSON.
func text(result any) string {
	if object, ok := result.(map[string]any); ok && len(object) == 1 {
		for _, v := range object {
			if s, ok := v.(string); ok {
				return s
			}
		}
	}
	data, err := json.Marshal(result)
	if err != nil {
		return ""
	}
	return string(data)
}

// visible writes invisible characters so that they are seen.
func visible(s string) string {
	if !strings.ContainsFunc(s, views.Invisible) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if views.Invisible(r) {
			fmt.Fprintf(&b, `\u{%x}`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
