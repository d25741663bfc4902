// Package toolpin is the first-party guard that notices when a tool is no longer what
// an operator has looked at. What the model is told of a tool has a digest; a tool
// with another one is left out of requests, and its calls are refused.
package toolpin

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings are the digests.
type Settings struct {
	Pins    map[string]string `json:"pins" doc:"digest of each tool's definition, as sha256:HEX: of its name, description and schemas, as why of a denial shows it; several with blanks between them if agents are told different ones" max:"1024"`
	Unknown string            `json:"unknown,omitempty" doc:"what becomes of tools without a pin" enum:"deny,allow" default:"deny"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "tool-pin", Phases: []guest.Phase{guest.PhaseRequest, guest.PhaseCall},
		Mutates: []guest.Phase{guest.PhaseRequest}, Check: Check, Judge: Judge}
}

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}( sha256:[0-9a-f]{64})*$`)

// Check refuses what is no digest.
func Check(s Settings) error {
	var errs []error
	for name, pin := range s.Pins {
		if !digest.MatchString(pin) {
			errs = append(errs, fmt.Errorf("pins.%s: %q: want sha256: and 64 digits of lower-case hexadecimal, or several of that with a blank between them", name, pin))
		}
	}
	return errors.Join(errs...)
}

// Judge judges one request or call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if q.Phase == guest.PhaseCall {
		if q.Tool.Definition == "" {
			return guest.Deny("bad_argument", "there is no such tool", guest.Why{Rule: "pins", Saw: q.Tool.Name})
		}
		code := s.judge(q.Tool.Name, q.Tool.Definition)
		why := guest.Why{Rule: code, Saw: q.Tool.Name + " sha256:" + q.Tool.Definition}
		switch code {
		case "tool_changed":
			return guest.Deny(code, "that tool is not the one that was looked at", why)
		case "tool_unknown":
			return guest.Deny(code, "that tool was not looked at", why)
		}
		return guest.Allow()
	}
	request := views.Tree(q.Judged())
	var why []guest.Why
	removed := views.KeepDeclared(request, func(d views.Declared) bool {
		definition := ""
		if !d.Provider {
			var err error
			if definition, err = guest.Definition(d.Name, d.Description, d.Input, d.Output); err != nil {
				return false
			}
		}
		code := s.judge(d.Name, definition)
		if code != "" {
			why = append(why, guest.Why{Rule: code, Saw: d.Name + " sha256:" + definition})
		}
		return code == ""
	})
	if !removed {
		return guest.Allow()
	}
	v := guest.Rewrite(request)
	v.Why = why[:min(len(why), 16)]
	return v
}

// judge returns what is wrong with a tool, or "".
func (s *Settings) judge(name, definition string) string {
	pin, pinned := s.Pins[name]
	switch {
	case !pinned && s.Unknown == "allow":
		return ""
	case !pinned:
		return "tool_unknown"
	case !slices.Contains(strings.Fields(pin), "sha256:"+definition):
		return "tool_changed"
	}
	return ""
}
