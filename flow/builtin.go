package flow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// ExitLoop returns the tool exit_loop, with which a model ends the [LoopAgent] it
// works in.
func ExitLoop() Tool {
	return NewTool(Spec{Name: "exit_loop", Description: "Exits the loop.\n\nCall this function only when you are instructed to do so.\n", Effects: abi.None},
		func(ctx *ToolContext, _ struct{}) (map[string]string, error) {
			if err := ctx.SkipSummarization(); err != nil {
				return nil, err
			}
			return map[string]string{}, ctx.Escalate()
		})
}

// LoadArtifacts returns the tool load_artifacts. The model is told the names of the
// artifacts; a call answers with the names it asked for, and the next request
// carries the artifacts themselves behind that answer, once.
func LoadArtifacts() Tool {
	return &loadArtifacts{Spec{Name: "load_artifacts", Description: "Loads the artifacts and adds them to the session.", Effects: abi.None,
		Input: &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{
			"artifact_names": {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}}}}
}

type loadArtifacts struct{ spec Spec }

func (t *loadArtifacts) Spec() *Spec { return &t.spec }

func (t *loadArtifacts) Run(_ *ToolContext, permit Permit) (Outcome, error) {
	var args struct {
		Names []string `json:"artifact_names"`
	}
	if err := abi.DecodeKnown(permit.Args(), &args); err != nil {
		return Outcome{}, err
	}
	result, err := abi.Marshal(map[string]any{"artifact_names": append([]string{}, args.Names...)})
	return Outcome{Result: result}, err
}

// ProcessRequest implements [RequestProcessor].
func (t *loadArtifacts) ProcessRequest(ctx *CallbackContext, req *Request) error {
	names, err := ctx.Artifacts()
	if err != nil {
		return fmt.Errorf("artifacts: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	req.AppendInstructions(fmt.Sprintf("You have a list of artifacts:\n  %s\n\nWhen the user asks questions about any of the artifacts, you should call the "+
		"`load_artifacts` function to load the artifact. Do not generate any text other than the function call. Whenever you are asked about artifacts, "+
		"you should first load it. You must always load an artifact to access its content, even if it has been loaded before.", jsonText(names)))
	if len(req.Contents) == 0 {
		return nil
	}
	for _, r := range (&session.Response{Content: req.Contents[len(req.Contents)-1]}).Responses() {
		wanted, _ := r.Response["artifact_names"].([]any)
		if r.Name != t.spec.Name {
			continue
		}
		for _, w := range wanted {
			name, _ := w.(string)
			part, err := ctx.Artifact(name, 0)
			if err != nil {
				return fmt.Errorf("artifact %s: %w", escape(name, 128), err)
			}
			req.Contents = append(req.Contents, &genai.Content{Role: genai.RoleUser,
				Parts: []*genai.Part{genai.NewPartFromText("Artifact " + name + " is:"), part}})
		}
	}
	return nil
}

// LoadMemory returns the tool load_memory, with which a model searches the run's
// [Memory].
func LoadMemory() Tool {
	return &loadMemory{Spec{Name: "load_memory", Description: "Loads the memory for the current user.", Effects: abi.None,
		Input: &jsonschema.Schema{Type: "object", Required: []string{"query"}, Properties: map[string]*jsonschema.Schema{
			"query": {Type: "string", Description: "The query to search memory for."}}}}}
}

type loadMemory struct{ spec Spec }

func (t *loadMemory) Spec() *Spec { return &t.spec }

func (t *loadMemory) Run(ctx *ToolContext, permit Permit) (Outcome, error) {
	var args struct {
		Query string `json:"query"`
	}
	if err := abi.DecodeKnown(permit.Args(), &args); err != nil {
		return Outcome{}, err
	}
	found, err := ctx.SearchMemory(args.Query)
	if err != nil {
		return Outcome{}, err
	}
	memories := []any{}
	for _, e := range found {
		m := map[string]any{"author": e.Author, "content": e.Content}
		if !e.Time.IsZero() {
			m["timestamp"] = e.Time.Format(time.RFC3339)
		}
		memories = append(memories, m)
	}
	result, err := abi.Marshal(map[string]any{"memories": memories})
	return Outcome{Result: result}, err
}

// ProcessRequest implements [RequestProcessor].
func (t *loadMemory) ProcessRequest(_ *CallbackContext, req *Request) error {
	req.AppendInstructions("You have memory. You can use it to answer questions. If any questions need\n" +
		"you to look up the memory, you should call load_memory function with a query.")
	return nil
}

// PreloadMemory returns a tool that the model does not see: before each request it
// searches the run's [Memory] for the first text of the user's message and adds what
// it finds to the instruction.
func PreloadMemory() Tool { return &preloadMemory{Spec{Name: "preload_memory"}} }

type preloadMemory struct{ spec Spec }

func (t *preloadMemory) Spec() *Spec { return &t.spec }

// ProcessRequest implements [RequestProcessor].
func (t *preloadMemory) ProcessRequest(ctx *CallbackContext, req *Request) error {
	query := firstText(ctx.run.userContent)
	if query == "" {
		return nil
	}
	found, err := ctx.SearchMemory(query)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range found {
		text := e.Text()
		if text == "" {
			continue
		}
		if !e.Time.IsZero() {
			lines = append(lines, "Time: "+e.Time.Format(time.RFC3339))
		}
		if e.Author != "" {
			text = e.Author + ": " + text
		}
		lines = append(lines, text)
	}
	if len(lines) > 0 {
		req.AppendInstructions("The following content is from your previous conversations with the user.\n" +
			"They may be useful for answering the user's current query.\n<PAST_CONVERSATIONS>\n" + strings.Join(lines, "\n") + "\n</PAST_CONVERSATIONS>")
	}
	return nil
}

// An Example is a question and what a model should do about it.
type Example struct {
	Input  *genai.Content   `json:"input"`
	Output []*genai.Content `json:"output"`
}

// Examples returns a tool that the model does not see: it writes examples into the
// instruction when the user's message begins with text. Calls in them are text; none
// is made.
func Examples(examples ...Example) Tool {
	return &exampleTool{Spec{Name: "example_tool"}, slices.Clone(examples)}
}

type exampleTool struct {
	spec     Spec
	examples []Example
}

func (t *exampleTool) Spec() *Spec { return &t.spec }

// ProcessRequest implements [RequestProcessor].
func (t *exampleTool) ProcessRequest(ctx *CallbackContext, req *Request) error {
	if firstText(ctx.run.userContent) == "" {
		return nil
	}
	var b strings.Builder
	b.WriteString("<EXAMPLES>\nBegin few-shot\nThe following are examples of user queries and model responses using the available tools.\n\n")
	for i, e := range t.examples {
		fmt.Fprintf(&b, "EXAMPLE %d:\nBegin example\n", i+1)
		role := ""
		for _, c := range append([]*genai.Content{e.Input}, e.Output...) {
			if c == nil {
				continue
			}
			if c.Role != role {
				role = c.Role
				fmt.Fprintf(&b, "[%s]\n", role)
			}
			for _, p := range c.Parts {
				b.WriteString(exampleText(p))
			}
		}
		b.WriteString("End example\n\n")
	}
	b.WriteString("End few-shot\n<EXAMPLES>")
	req.AppendInstructions(b.String())
	return nil
}

func exampleText(p *genai.Part) string {
	switch {
	case p == nil:
	case p.Text != "":
		return p.Text + "\n"
	case p.FunctionCall != nil:
		return fmt.Sprintf("```tool_code\n%s(%s)\n```\n", p.FunctionCall.Name, jsonText(p.FunctionCall.Args))
	case p.FunctionResponse != nil:
		return fmt.Sprintf("```tool_outputs\n%s\n```\n", jsonText(p.FunctionResponse.Response))
	}
	return ""
}
