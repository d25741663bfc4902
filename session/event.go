package session

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/genai"
)

// A Response is what a model said, whole or in part.
type Response struct {
	Content             *genai.Content                              `json:"content,omitempty"`
	Partial             bool                                        `json:"partial,omitempty"`      // more of this content follows
	TurnComplete        bool                                        `json:"turnComplete,omitempty"` // streams: the model has finished its turn
	Interrupted         bool                                        `json:"interrupted,omitempty"`
	ErrorCode           string                                      `json:"errorCode,omitempty"` // the provider's own code; not a Go error
	ErrorMessage        string                                      `json:"errorMessage,omitempty"`
	FinishReason        genai.FinishReason                          `json:"finishReason,omitempty"`
	Usage               *genai.GenerateContentResponseUsageMetadata `json:"usageMetadata,omitempty"`
	Grounding           *genai.GroundingMetadata                    `json:"groundingMetadata,omitempty"`
	Citation            *genai.CitationMetadata                     `json:"citationMetadata,omitempty"`
	InputTranscription  *genai.Transcription                        `json:"inputTranscription,omitempty"`
	OutputTranscription *genai.Transcription                        `json:"outputTranscription,omitempty"`
}

// Calls returns the function calls in the content, in order.
func (r *Response) Calls() []*genai.FunctionCall {
	var calls []*genai.FunctionCall
	for _, p := range parts(r.Content) {
		if p != nil && p.FunctionCall != nil {
			calls = append(calls, p.FunctionCall)
		}
	}
	return calls
}

// Responses returns the function responses in the content, in order.
func (r *Response) Responses() []*genai.FunctionResponse {
	var responses []*genai.FunctionResponse
	for _, p := range parts(r.Content) {
		if p != nil && p.FunctionResponse != nil {
			responses = append(responses, p.FunctionResponse)
		}
	}
	return responses
}

// Text returns the text parts that are not thoughts, joined without separator.
func (r *Response) Text() string {
	var text string
	for _, p := range parts(r.Content) {
		if p != nil && !p.Thought {
			text += p.Text
		}
	}
	return text
}

// An Event is one record of a conversation. Its JSON form is that of ADK's REST
// interface, but for the time, which is RFC 3339.
type Event struct {
	ID             string    `json:"id"`
	Time           time.Time `json:"time"`
	InvocationID   string    `json:"invocationId,omitempty"`
	Author         string    `json:"author,omitempty"` // "user" or the name of an agent
	Branch         string    `json:"branch,omitempty"`
	IsolationScope string    `json:"isolationScope,omitempty"`
	Response
	LongRunningToolIDs []string `json:"longRunningToolIds,omitempty"`
	Actions            Actions  `json:"actions,omitzero"`
}

// Actions are the effects of an event on the session and on the run.
type Actions struct {
	StateDelta             map[string]any          `json:"stateDelta,omitempty"` // keys with their prefix; see Scope
	ArtifactDelta          map[string]int64        `json:"artifactDelta,omitempty"`
	RequestedConfirmations map[string]Confirmation `json:"requestedToolConfirmations,omitempty"` // by call id
	SkipSummarization      bool                    `json:"skipSummarization,omitempty"`
	Escalate               bool                    `json:"escalate,omitempty"`
	TransferToAgent        string                  `json:"transferToAgent,omitempty"`
	Compaction             *Compaction             `json:"compaction,omitempty"` // the event is a record, and no part of the conversation
}

// A Compaction is a summary that stands for earlier events: those of a span of
// time, both ends included, that are stored before it, but for the excluded ones.
// Without a content it stands for nothing.
type Compaction struct {
	Start    time.Time      `json:"startTimestamp"`
	End      time.Time      `json:"endTimestamp"`
	Content  *genai.Content `json:"compactedContent,omitempty"`
	Excluded []EventRef     `json:"excludedEvents,omitempty"`
}

// An EventRef names the events of a run at a time, to the microsecond.
type EventRef struct {
	InvocationID string    `json:"invocationId"`
	Time         time.Time `json:"timestamp"`
}

// Clone returns a copy of c that shares nothing that callers may change.
func (c *Compaction) Clone() *Compaction {
	if c == nil {
		return nil
	}
	out := *c
	out.Content = CloneContent(c.Content)
	out.Excluded = slices.Clone(c.Excluded)
	return &out
}

// A Confirmation is a question to a person about a call, and the answer. It is
// what ADK's events show; the authority is the [Question] kept by the store.
type Confirmation struct {
	Hint      string `json:"hint,omitempty"`
	Confirmed bool   `json:"confirmed"`
	Payload   any    `json:"payload"`
}

// Final reports whether the event can be the last of its step: it skips the
// model's summary, waits for something long-running, or is a whole answer
// without calls, responses or a trailing code result. A record of a compaction
// never is.
func (e *Event) Final() bool {
	if e.Actions.Compaction != nil {
		return false
	}
	if e.Actions.SkipSummarization || len(e.LongRunningToolIDs) > 0 {
		return true
	}
	return len(e.Calls()) == 0 && len(e.Responses()) == 0 && !e.Partial && !e.endsWithCodeResult()
}

func (e *Event) endsWithCodeResult() bool {
	ps := parts(e.Content)
	return len(ps) > 0 && ps[len(ps)-1] != nil && ps[len(ps)-1].CodeExecutionResult != nil
}

// Clone returns a copy that shares nothing that callers may change. The bytes of
// blobs, what groundings and citations hold, and the lists of a usage are shared
// and must not be written to.
func (e *Event) Clone() *Event {
	c := *e
	c.Response = e.Response.clone()
	c.LongRunningToolIDs = slices.Clone(e.LongRunningToolIDs)
	c.Actions = e.Actions.Clone()
	return &c
}

func (r Response) clone() Response {
	r.Content = CloneContent(r.Content)
	r.Usage = cloneStruct(r.Usage)
	r.Grounding = cloneStruct(r.Grounding)
	r.Citation = cloneStruct(r.Citation)
	r.InputTranscription = cloneStruct(r.InputTranscription)
	r.OutputTranscription = cloneStruct(r.OutputTranscription)
	return r
}

// cloneStruct returns a shallow copy of what p points to.
func cloneStruct[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// Clone returns a copy of a that shares no map with it.
func (a Actions) Clone() Actions {
	a.StateDelta = CloneMap(a.StateDelta)
	a.ArtifactDelta = maps.Clone(a.ArtifactDelta)
	a.RequestedConfirmations = maps.Clone(a.RequestedConfirmations)
	for id, c := range a.RequestedConfirmations {
		c.Payload = CloneValue(c.Payload)
		a.RequestedConfirmations[id] = c
	}
	a.Compaction = a.Compaction.Clone()
	return a
}

// CloneContent returns a copy of c with its own parts and maps.
func CloneContent(c *genai.Content) *genai.Content {
	if c == nil {
		return nil
	}
	out := &genai.Content{Role: c.Role}
	if c.Parts != nil {
		out.Parts = make([]*genai.Part, len(c.Parts))
	}
	for i, p := range c.Parts {
		if p == nil {
			continue
		}
		q := *p
		if p.FunctionCall != nil {
			call := *p.FunctionCall
			call.Args = CloneMap(call.Args)
			q.FunctionCall = &call
		}
		if p.FunctionResponse != nil {
			response := *p.FunctionResponse
			response.Response = CloneMap(response.Response)
			q.FunctionResponse = &response
		}
		q.InlineData = cloneStruct(p.InlineData)
		q.FileData = cloneStruct(p.FileData)
		q.ExecutableCode = cloneStruct(p.ExecutableCode)
		q.CodeExecutionResult = cloneStruct(p.CodeExecutionResult)
		out.Parts[i] = &q
	}
	return out
}

// CloneMap returns a deep copy of m as far as it is made of maps and slices of
// generic JSON values. nil stays nil.
func CloneMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = CloneValue(v)
	}
	return out
}

// CloneValue is [CloneMap] for any generic JSON value.
func CloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return CloneMap(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = CloneValue(e)
		}
		return out
	}
	return v
}

func parts(c *genai.Content) []*genai.Part {
	if c == nil {
		return nil
	}
	return c.Parts
}
