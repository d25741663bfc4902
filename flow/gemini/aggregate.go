package gemini

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

const maxArgDepth = 64 // names in the path of a streamed argument

// An Aggregator puts the chunks of one streamed answer together by the rules of
// ADK. The zero value is ready for the first chunk. It is not safe for
// concurrent use, and is of no use after Close.
type Aggregator struct {
	exact map[*genai.PartialArg]json.Number // texts of numbers in the chunk that is added next; may be nil

	last      *session.Response // of the newest chunk; nil before the first
	usage     *genai.GenerateContentResponseUsageMetadata
	grounding *genai.GroundingMetadata
	citation  *genai.CitationMetadata
	finish    genai.FinishReason

	parts     []*genai.Part
	signature []byte // newest thought signature no whole call has taken

	text    strings.Builder
	thought bool // the buffered text is a thought

	// The call whose arguments are being streamed. There is one buffer, as in ADK:
	// chunks of two calls that alternate are mixed.
	name, id      string
	args          map[string]any
	callSignature []byte
}

// Add takes the next chunk and returns it as a partial response, whose content
// is the chunk's own: changes to it do not reach the aggregate.
func (a *Aggregator) Add(chunk *genai.GenerateContentResponse) *session.Response {
	response := toResponse(chunk)
	response.Partial = true
	response.TurnComplete = response.FinishReason != ""

	a.last = &session.Response{ErrorCode: response.ErrorCode, ErrorMessage: response.ErrorMessage}
	if response.Usage != nil {
		a.usage = response.Usage
	}
	if response.Grounding != nil {
		a.grounding = response.Grounding
	}
	if response.Citation != nil {
		a.citation = response.Citation
	}
	if response.FinishReason != "" {
		a.finish = response.FinishReason
	}
	if content := session.CloneContent(response.Content); content != nil {
		for _, part := range content.Parts {
			a.addPart(part)
		}
	}
	return response
}

// Close returns the aggregate of all chunks, or nil if there were none.
func (a *Aggregator) Close() *session.Response {
	if a.last == nil {
		return nil
	}
	a.flushText()
	a.flushCall()
	response := &session.Response{
		Content:      &genai.Content{Role: genai.RoleModel, Parts: a.parts},
		FinishReason: a.finish,
		Usage:        a.usage,
		Grounding:    a.grounding,
		Citation:     a.citation,
	}
	if a.finish != genai.FinishReasonStop {
		response.ErrorCode = a.last.ErrorCode
		response.ErrorMessage = a.last.ErrorMessage
	}
	return response
}

func (a *Aggregator) addPart(part *genai.Part) {
	if part == nil || reflect.ValueOf(*part).IsZero() {
		return
	}
	if len(part.ThoughtSignature) > 0 {
		a.signature = part.ThoughtSignature
	}
	switch call := part.FunctionCall; {
	case part.Text != "":
		if a.text.Len() > 0 && a.thought != part.Thought {
			a.flushText()
		}
		a.text.WriteString(part.Text)
		a.thought = part.Thought
	case call != nil && (call.PartialArgs != nil || isTrue(call.WillContinue)):
		a.addToCall(part)
	case call != nil:
		if call.Name == "" {
			return
		}
		a.flushText()
		if len(part.ThoughtSignature) == 0 {
			part.ThoughtSignature = a.signature
		}
		a.signature = nil
		a.parts = append(a.parts, part)
	default:
		a.flushText()
		a.parts = append(a.parts, part)
	}
}

// addToCall adds a piece of a call to the one being streamed. Arguments that do
// not come as partial ones are ignored.
func (a *Aggregator) addToCall(part *genai.Part) {
	call := part.FunctionCall
	if len(a.callSignature) == 0 {
		a.callSignature = part.ThoughtSignature
	}
	if call.Name != "" {
		a.name = call.Name
	}
	if call.ID != "" {
		a.id = call.ID
	}
	for _, arg := range call.PartialArgs {
		a.addArg(arg)
	}
	if isTrue(call.WillContinue) {
		return
	}
	a.flushText()
	a.flushCall()
}

// addArg sets, or for a string extends, the value at the argument's path: names
// separated by dots after an optional "$.". Brackets have no meaning. Dots beyond
// maxArgDepth belong to the last name, so that no path can nest deeper than the
// encoders of the result can follow.
func (a *Aggregator) addArg(arg *genai.PartialArg) {
	if arg == nil || arg.JsonPath == "" {
		return
	}
	var value any
	switch {
	case arg.StringValue != "":
		value = arg.StringValue
	case arg.NumberValue != nil:
		value = *arg.NumberValue
		if text, ok := a.exact[arg]; ok {
			value = text
		}
	case arg.BoolValue != nil:
		value = *arg.BoolValue
	case arg.NULLValue != "":
	default:
		return
	}
	if a.args == nil {
		a.args = map[string]any{}
	}
	names := strings.SplitN(strings.TrimPrefix(arg.JsonPath, "$."), ".", maxArgDepth)
	name := names[len(names)-1]
	at := a.args
	for _, name := range names[:len(names)-1] {
		inner, ok := at[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[name] = inner
		}
		at = inner
	}
	if text, ok := value.(string); ok {
		if before, ok := at[name].(string); ok {
			value = before + text
		}
	}
	at[name] = value
}

func (a *Aggregator) flushText() {
	if a.text.Len() == 0 {
		return
	}
	a.parts = append(a.parts, &genai.Part{Text: a.text.String(), Thought: a.thought})
	a.text.Reset()
	a.thought = false
}

// flushCall ends the call being streamed. Without a name there is none, and the
// arguments stay for the next.
func (a *Aggregator) flushCall() {
	if a.name == "" {
		return
	}
	a.parts = append(a.parts, &genai.Part{
		FunctionCall:     &genai.FunctionCall{ID: a.id, Name: a.name, Args: maps.Clone(a.args)},
		ThoughtSignature: a.callSignature,
	})
	a.name, a.id, a.callSignature = "", "", nil
	a.args = map[string]any{}
}

func isTrue(b *bool) bool { return b != nil && *b }
