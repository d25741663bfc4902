package flow

//adk:errors what begins "failed to" is the text that the vectors pin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/sandboxd/sandboxd/session"
)

// instructions appends the root's global instruction, then the agent's own.
func (f *agentRun) instructions(cc *CallbackContext, req *Request) error {
	for _, i := range []struct {
		what     string
		provider func(*Context) (string, error)
		text     string
	}{
		{"global instruction", f.tree.root.GlobalInstructionProvider, f.tree.root.GlobalInstruction},
		{"instruction", f.agent.InstructionProvider, f.agent.Instruction},
	} {
		text := i.text
		var err error
		if i.provider != nil {
			if text, err = contain(i.what+" provider", func() (string, error) { return i.provider(&cc.Context) }); err != nil {
				return fmt.Errorf("failed to evaluate %s provider: %w", i.what, err)
			}
		} else if text, err = fillPlaceholders(&cc.Context, text); err != nil {
			return fmt.Errorf("failed to inject session state into %s: %w", i.what, err)
		}
		req.AppendInstructions(text)
	}
	return nil
}

var placeholder = regexp.MustCompile(`\{+[^{}]*\}+`)

// fillPlaceholders replaces {key}, {key?}, {app:key}, {artifact.name} and so on.
// What does not look like a key stays. Values are filled in as they are and are
// not expanded again.
func fillPlaceholders(c *Context, text string) (string, error) {
	var failed error
	out := placeholder.ReplaceAllStringFunc(text, func(match string) string {
		if failed != nil {
			return match
		}
		value, err := placeholderValue(c, match)
		failed = err
		return value
	})
	return out, failed
}

func placeholderValue(c *Context, match string) (string, error) {
	name := strings.TrimSpace(strings.Trim(match, "{}"))
	name, optional := strings.CutSuffix(name, "?")
	if file, ok := strings.CutPrefix(name, "artifact."); ok {
		part, err := c.Artifact(file, 0)
		switch {
		case err == nil:
			return part.Text, nil
		case errors.Is(err, ErrNoArtifacts):
			return "", err
		case optional:
			if !errors.Is(err, fs.ErrNotExist) {
				c.run.cfg.Logger.Warn("artifact of an instruction not loaded", "artifact", file, "err", err)
			}
			return "", nil
		}
		return "", fmt.Errorf("failed to load artifact %s: %w", file, err)
	}
	if !validStateName(name) {
		return match, nil
	}
	value, ok := c.State(name)
	if !ok {
		if optional {
			return "", nil
		}
		return "", errors.New("state key does not exist")
	}
	if value == nil {
		return "", nil
	}
	return stateText(value), nil
}

// stateText writes a state value as ADK does: text as it is, everything else as
// Go prints it.
func stateText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(v)
}

// validStateName reports whether name is an identifier, with or without one of
// the prefixes.
func validStateName(name string) bool {
	scope, rest := session.SplitKey(name)
	if scope == session.ScopeSession && strings.Contains(name, ":") {
		return false
	}
	return validAgentName(rest) // the same form
}
