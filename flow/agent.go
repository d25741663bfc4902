package flow

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genai"
)

// An Agent answers with the help of a model and tools. It is configured by a
// literal, checked by [NewRunner], and must not be changed afterwards.
type Agent struct {
	Name        string // a letter or '_', then letters, digits and '_'; not "user"
	Description string // for the model, and for other agents

	// Instruction is added to the system instruction. Placeholders in braces,
	// such as {city}, {user:unit?} and {artifact.notes.txt}, are filled from
	// the session; one that ends in '?' may be missing.
	Instruction string
	// InstructionProvider, if set, replaces Instruction. Its text is used as it
	// is, without placeholders.
	InstructionProvider func(ctx *Context) (string, error)
	// GlobalInstruction and its provider come before the instruction.
	GlobalInstruction         string
	GlobalInstructionProvider func(ctx *Context) (string, error)

	Model          Model
	GenerateConfig *genai.GenerateContentConfig // copied for every request

	// Tools are offered to the model in this order, then the tools of each
	// toolset. Two tools with one name fail the run.
	Tools    []Tool
	Toolsets []Toolset

	// Hooks are this agent's callbacks, in order. The runner's hooks go first. The
	// points that belong to a run and not to an agent are the runner's alone.
	Hooks []Hooks

	// OutputKey, if set, names the state key under which the agent's final text
	// is stored.
	OutputKey string

	// IncludeContents says how much history the model sees.
	IncludeContents IncludeContents
}

// IncludeContents says how much history a model sees.
type IncludeContents string

// The choices.
const (
	IncludeDefault IncludeContents = ""     // all of the history that concerns the agent
	IncludeNone    IncludeContents = "none" // the current turn
)

func (a *Agent) validate() error {
	if a == nil {
		return errors.New("agent: none given")
	}
	if !validAgentName(a.Name) || a.Name == userAuthor {
		return fmt.Errorf("agent %q: name: want a letter or '_', then letters, digits and '_'; %q is taken", a.Name, userAuthor)
	}
	for i, t := range a.Tools {
		if t == nil || t.Spec() == nil {
			panic(fmt.Sprintf("flow: agent %s: tool %d is nil", a.Name, i))
		}
	}
	for i, t := range a.Toolsets {
		if t == nil {
			panic(fmt.Sprintf("flow: agent %s: toolset %d is nil", a.Name, i))
		}
	}
	for _, h := range a.Hooks {
		if h.OnUserMessage != nil || h.BeforeRun != nil || h.AfterRun != nil || h.OnEvent != nil {
			return fmt.Errorf("agent %s: hooks %q: on-user-message, before-run, after-run and on-event are the runner's", a.Name, h.Name)
		}
	}
	if a.IncludeContents != IncludeDefault && a.IncludeContents != IncludeNone {
		return fmt.Errorf("agent %s: include contents %q: want %q or nothing", a.Name, a.IncludeContents, IncludeNone)
	}
	return nil
}

func validAgentName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && (s[0] < '0' || s[0] > '9')
}

const userAuthor = "user"
