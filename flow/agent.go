package flow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"
)

// An Agent answers with the help of a model and tools, or runs other agents. It
// is configured by a literal, checked by [NewRunner], and must not be changed
// afterwards. One agent stands at one place of one tree; names in a tree differ.
type Agent struct {
	Name        string // a letter or '_', then letters, digits and '_'; not "user"
	Description string // for the model, and for other agents

	// Type says how the agent works. All but [ModelAgent] run Agents and have
	// neither a model nor what belongs to one.
	Type          AgentType
	MaxIterations int // of a [LoopAgent]; 0: until an agent escalates, or the run's limits

	// Agents are the agents below this one. A model agent hands the conversation
	// over to them, or gives them tasks, as their Mode says.
	Agents []*Agent
	// Mode says how the agent above uses this one.
	Mode Mode
	// NoTransferToParent and NoTransferToPeers keep this agent from handing the
	// conversation to the agent above, and to the others below that one. With
	// NoTransferToParent the user's next message goes to the root again.
	NoTransferToParent bool
	NoTransferToPeers  bool

	// Instruction is added to the system instruction. Placeholders in braces,
	// such as {city}, {user:unit?} and {artifact.notes.txt}, are filled from
	// the session; one that ends in '?' may be missing.
	Instruction string
	// InstructionProvider, if set, replaces Instruction. Its text is used as it
	// is, without placeholders.
	InstructionProvider func(ctx *Context) (string, error)
	// GlobalInstruction and its provider come before the instruction of every
	// agent of the tree. Only the root's count.
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
	// is stored, as text even if OutputSchema is set.
	OutputKey string
	// InputSchema is of what other agents give this one as a task; nil: a text
	// named request. OutputSchema is of its answer; nil: a text. See
	// structured.go for how a model is held to it.
	InputSchema  *jsonschema.Schema
	OutputSchema *jsonschema.Schema

	// IncludeContents says how much history the model sees.
	IncludeContents IncludeContents
}

// AgentType says how an agent works.
type AgentType string

// The types of agents.
const (
	ModelAgent      AgentType = ""           // asks its model and runs tools
	SequentialAgent AgentType = "sequential" // runs its agents one after the other
	ParallelAgent   AgentType = "parallel"   // runs its agents at the same time, each on a branch of its own
	LoopAgent       AgentType = "loop"       // runs its agents in turn, again and again, until one escalates
)

// Mode says how the agent above uses an agent.
type Mode string

// The modes. The zero value is [Chat], but for an agent that is given a task.
const (
	Chat       Mode = "chat"        // the conversation is handed over to it
	Task       Mode = "task"        // it is given a task, may ask the user, and says when it is done
	SingleTurn Mode = "single_turn" // it is given a task and answers without anybody's help
)

// IncludeContents says how much history a model sees.
type IncludeContents string

// The choices.
const (
	IncludeDefault IncludeContents = ""        // all of the history that concerns the agent; of a single-turn task, the task
	IncludeAll     IncludeContents = "default" // the same, and also for a single-turn task; ADK's name
	IncludeNone    IncludeContents = "none"    // the current turn
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
	switch a.IncludeContents {
	case IncludeDefault, IncludeAll, IncludeNone:
	default:
		return fmt.Errorf("agent %s: include contents %q: want %q, %q or nothing", a.Name, a.IncludeContents, IncludeAll, IncludeNone)
	}
	switch a.Mode {
	case "", Chat, Task, SingleTurn:
	default:
		return fmt.Errorf("agent %s: mode %q: want %q, %q or %q", a.Name, a.Mode, Chat, Task, SingleTurn)
	}
	for name, schema := range map[string]*jsonschema.Schema{"input": a.InputSchema, "output": a.OutputSchema} {
		if schema == nil {
			continue
		}
		if _, err := schema.Resolve(nil); err != nil {
			return fmt.Errorf("agent %s: %s schema: %w", a.Name, name, err)
		}
	}
	if a.MaxIterations < 0 || a.MaxIterations > 0 && a.Type != LoopAgent {
		return fmt.Errorf("agent %s: max iterations %d: only of a loop, and at least 1", a.Name, a.MaxIterations)
	}
	return a.validateType()
}

// validateType refuses an agent whose type has no use for what it is given.
func (a *Agent) validateType() error {
	switch a.Type {
	case ModelAgent:
		return nil
	case SequentialAgent, ParallelAgent, LoopAgent:
	default:
		return fmt.Errorf("agent %s: type %q: want %q, %q, %q or nothing", a.Name, a.Type, SequentialAgent, ParallelAgent, LoopAgent)
	}
	if len(a.Agents) == 0 {
		return fmt.Errorf("agent %s: type %q: has no agents to run", a.Name, a.Type)
	}
	if a.Model != nil || a.Instruction != "" || a.InstructionProvider != nil || a.GenerateConfig != nil || a.Tools != nil || a.Toolsets != nil ||
		a.OutputKey != "" || a.InputSchema != nil || a.OutputSchema != nil || a.Mode != "" || a.IncludeContents != "" {
		return fmt.Errorf("agent %s: type %q: only model agents have a model, instructions, tools, schemas, a mode and an output key", a.Name, a.Type)
	}
	return nil
}

// delegates returns the agents below that are given tasks in a mode.
func (a *Agent) delegates(mode Mode) []*Agent {
	var out []*Agent
	for _, sub := range a.Agents {
		if sub.Type == ModelAgent && sub.Mode == mode {
			out = append(out, sub)
		}
	}
	return out
}

func validAgentName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && (s[0] < '0' || s[0] > '9')
}

const userAuthor = "user"
