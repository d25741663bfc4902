package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Names of the calls between framework and client, which models do not see.
const (
	confirmationCall = "adk_request_confirmation"
	credentialCall   = "adk_request_credential"
)

const nudge = "Continue processing previous requests as instructed. Exit or provide a summary if no more outputs are needed."

// contents turns the history into what the model is sent: only what this agent
// may see, other agents' words as context, and every call next to its response.
// The history itself is not changed, and the contents are the agent run's own: see
// settled.
func (f *agentRun) contents() ([]*genai.Content, error) {
	all, rewrites := f.history()
	events := all
	if f.hidesHistory() {
		events = f.currentTurn(all)
	}
	old, rest, calls := f.split(events, all, rewrites)
	recent, err := f.inOrder(rest, calls)
	if err != nil {
		return nil, err
	}
	return f.framed(slices.Concat(old, recent), events), nil
}

// assemble makes contents of a part of the history. all is where calls are looked
// for whose responses are in it.
func (f *agentRun) assemble(events, all []*session.Event) ([]*genai.Content, error) {
	out, err := f.inOrder(events, all)
	if err != nil {
		return nil, err
	}
	return f.framed(out, events), nil
}

// inOrder makes contents of the events that end the history.
func (f *agentRun) inOrder(events, all []*session.Event) ([]*genai.Content, error) {
	views, err := latestResponseFirst(f.prepared(f.visible(events), all))
	if err != nil {
		return nil, err
	}
	return cleaned(pairUp(views, true)), nil
}

// prepared puts summaries in their place, joins transcriptions and drops orphans.
func (f *agentRun) prepared(views []*view, all []*session.Event) []*view {
	if f.cfg.Compaction != nil {
		views = applyRecords(views)
	}
	return f.pruneOrphans(mergeTranscriptions(views), all)
}

// framed puts a task before the contents of events, and makes the user speak last.
func (f *agentRun) framed(out []*genai.Content, events []*session.Event) []*genai.Content {
	if input := f.taskInput(events); input != nil {
		out = slices.Insert(out, 0, input)
	}
	if len(out) > 0 && out[len(out)-1].Role != genai.RoleUser {
		out = append(out, genai.NewContentFromText(nudge, genai.RoleUser))
	}
	return out
}

// hidesHistory reports whether the agent sees the current turn only: because it
// says so, or because it was given a single-turn task and does not say otherwise.
func (f *agentRun) hidesHistory() bool {
	switch f.agent.IncludeContents {
	case IncludeNone:
		return true
	case IncludeAll:
		return false
	}
	return f.bound == SingleTurn
}

// A view is an event as the model will see it.
type view struct {
	event   *session.Event
	content *genai.Content
	input   bool // a transcription of what the user said
	spoken  bool // a transcription
	remnant bool // what is left of an event that held an orphan
}

func (v *view) calls() []*genai.FunctionCall { return (&session.Response{Content: v.content}).Calls() }

func (v *view) responses() []*genai.FunctionResponse {
	return (&session.Response{Content: v.content}).Responses()
}

// currentTurn returns the events from the newest one that is the user's or
// another agent's; all of them if there is none.
func (f *agentRun) currentTurn(events []*session.Event) []*session.Event {
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		if f.sees(e) && !isRecord(e) && (e.Author == userAuthor || f.foreign(e)) {
			return events[i:]
		}
	}
	return events
}

// sees reports whether an event is on this run's branch and in its scope: an
// event without a branch, or on the branch or one above it, and exactly the
// same scope.
func (f *agentRun) sees(e *session.Event) bool {
	onBranch := f.branch == "" || e.Branch == "" || e.Branch == f.branch || strings.HasPrefix(f.branch, e.Branch+".")
	return onBranch && e.IsolationScope == f.scope
}

func (f *agentRun) foreign(e *session.Event) bool {
	return e.Author != "" && e.Author != userAuthor && e.Author != f.agent.Name
}

func (f *agentRun) visible(events []*session.Event) []*view {
	var out []*view
	for _, e := range events {
		if isRecord(e) {
			if f.cfg.Compaction != nil && f.sees(e) && e.Actions.Compaction.Content != nil {
				out = append(out, &view{event: e, content: &genai.Content{}})
			}
			continue
		}
		hasContent := e.Content != nil && e.Content.Role != "" && len(e.Content.Parts) > 0
		spoken := !hasContent && (e.InputTranscription != nil || e.OutputTranscription != nil)
		if !hasContent && !spoken || !f.sees(e) || isProtocol(e) {
			continue
		}
		switch {
		case spoken && e.InputTranscription != nil:
			out = append(out, &view{event: e, spoken: true, input: true, content: genai.NewContentFromText(e.InputTranscription.Text, genai.RoleUser)})
		case spoken:
			out = append(out, &view{event: e, spoken: true, content: genai.NewContentFromText(e.OutputTranscription.Text, genai.RoleModel)})
		case f.foreign(e):
			out = append(out, &view{event: e, content: asContext(e)})
		default:
			out = append(out, &view{event: e, content: e.Content})
		}
	}
	return out
}

// isProtocol reports whether an event is part of asking a person or a client.
func isProtocol(e *session.Event) bool {
	return slices.ContainsFunc(parts(e.Content), func(p *genai.Part) bool {
		asks := func(name string) bool { return name == confirmationCall || name == credentialCall }
		return p != nil && (p.FunctionCall != nil && asks(p.FunctionCall.Name) || p.FunctionResponse != nil && asks(p.FunctionResponse.Name))
	})
}

// asContext tells what another agent did, in the user's role, so that the model
// does not take it for its own words.
func asContext(e *session.Event) *genai.Content {
	c := &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{genai.NewPartFromText("For context:")}}
	say := func(format string, args ...any) {
		c.Parts = append(c.Parts, genai.NewPartFromText(fmt.Sprintf("["+e.Author+"] "+format, args...)))
	}
	for _, p := range e.Content.Parts {
		switch {
		case p == nil:
		case p.Text != "":
			say("said: %s", p.Text)
		case p.FunctionCall != nil:
			say("called tool `%s` with parameters: %s", p.FunctionCall.Name, jsonText(p.FunctionCall.Args))
		case p.FunctionResponse != nil:
			say("`%s` tool returned result: %s", p.FunctionResponse.Name, jsonText(p.FunctionResponse.Response))
		default:
			c.Parts = append(c.Parts, p)
		}
	}
	return c
}

func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// mergeTranscriptions joins neighbouring transcriptions of one speaker.
func mergeTranscriptions(in []*view) []*view {
	var out []*view
	for _, v := range in {
		if n := len(out); v.spoken && n > 0 && out[n-1].spoken && out[n-1].input == v.input {
			joined := *out[n-1]
			joined.content = genai.NewContentFromText(joined.content.Parts[0].Text+v.content.Parts[0].Text, genai.Role(joined.content.Role))
			out[n-1] = &joined
			continue
		}
		out = append(out, v)
	}
	return out
}

// pruneOrphans drops responses whose call is nowhere in the whole history.
func (f *agentRun) pruneOrphans(in []*view, all []*session.Event) []*view {
	known := map[string]bool{}
	for _, e := range all {
		for _, c := range e.Calls() {
			known[c.ID] = true
		}
	}
	orphan := func(p *genai.Part) bool {
		return p != nil && p.FunctionResponse != nil && p.FunctionResponse.ID != "" && !known[p.FunctionResponse.ID]
	}
	var out []*view
	var dropped []string
	for _, v := range in {
		if !slices.ContainsFunc(v.content.Parts, orphan) {
			out = append(out, v)
			continue
		}
		left := &genai.Content{Role: v.content.Role}
		for _, p := range v.content.Parts {
			if orphan(p) {
				dropped = append(dropped, p.FunctionResponse.ID)
			} else {
				left.Parts = append(left.Parts, p)
			}
		}
		if len(left.Parts) > 0 {
			out = append(out, &view{content: left, remnant: true})
		}
	}
	if len(dropped) > 0 {
		f.cfg.Logger.Warn("responses without a call left out of the request", "ids", dropped)
	}
	return out
}

// latestResponseFirst moves the responses that belong to the call which the last
// event answers to the end. Text between that call and its answer is dropped;
// other tool exchanges stay.
func latestResponseFirst(in []*view) ([]*view, error) {
	n := len(in)
	if n < 2 {
		return in, nil
	}
	wanted := map[string]struct{}{}
	for _, r := range in[n-1].responses() {
		wanted[r.ID] = struct{}{}
	}
	if len(wanted) == 0 {
		return in, nil
	}
	asks := func(v *view) bool {
		return slices.ContainsFunc(v.calls(), func(c *genai.FunctionCall) bool { _, ok := wanted[c.ID]; return ok })
	}
	if asks(in[n-2]) {
		return in, nil
	}
	at := n - 2
	for at >= 0 && !asks(in[at]) {
		at--
	}
	if at < 0 {
		return nil, fmt.Errorf("no function call event found for function responses ids: %v", slices.Sorted(maps.Keys(wanted)))
	}
	asked := map[string]struct{}{}
	for _, c := range in[at].calls() {
		asked[c.ID] = struct{}{}
	}
	for id := range wanted {
		if _, ok := asked[id]; !ok {
			return nil, fmt.Errorf("validation failed: last response event has IDs not in the matching call event. Call IDs: %v, Response IDs: %v", asked, wanted)
		}
	}
	out := slices.Clone(in[:at+1])
	var answers []*view
	for _, v := range in[at+1 : n-1] {
		responses := v.responses()
		answersIt := slices.ContainsFunc(responses, func(r *genai.FunctionResponse) bool { _, ok := asked[r.ID]; return ok })
		switch {
		case answersIt:
			answers = append(answers, v)
		case len(responses) > 0 || len(v.calls()) > 0 || v.remnant:
			out = append(out, v)
		}
	}
	return append(out, mergeAnswers(append(answers, in[n-1]))), nil
}

// pairUp puts the responses to each call right behind it. Calls that the last
// event of the history answers come last; ends says that in ends with that event.
func pairUp(in []*view, ends bool) []*view {
	answeredBy := map[string]int{}
	for i, v := range in {
		for _, r := range v.responses() {
			answeredBy[r.ID] = i
		}
	}
	if len(answeredBy) == 0 {
		return in
	}
	last := len(in) - 1
	lastAnswers := ends && len(in[last].responses()) > 0
	var out, tail []*view
	for _, v := range in {
		calls := v.calls()
		switch {
		case len(v.responses()) > 0:
			continue // placed behind its call
		case len(calls) == 0:
			out = append(out, v)
			continue
		}
		var at []int
		for _, c := range calls {
			if i, ok := answeredBy[c.ID]; ok && !slices.Contains(at, i) {
				at = append(at, i)
			}
		}
		slices.Sort(at)
		pair := []*view{v}
		if len(at) > 0 {
			var answers []*view
			for _, i := range at {
				answers = append(answers, in[i])
			}
			pair = append(pair, mergeAnswers(answers))
		}
		if lastAnswers && slices.Contains(at, last) {
			tail = append(tail, pair...)
		} else {
			out = append(out, pair...)
		}
	}
	return append(out, tail...)
}

// mergeAnswers makes one content of several; a later response to the same call
// takes the place of an earlier one.
func mergeAnswers(in []*view) *view {
	if len(in) == 1 {
		return in[0]
	}
	out := &genai.Content{Role: in[0].content.Role}
	place := map[string]int{}
	for _, v := range in {
		for _, p := range v.content.Parts {
			if p == nil {
				continue
			}
			if p.FunctionResponse != nil {
				if i, ok := place[p.FunctionResponse.ID]; ok {
					out.Parts[i] = p
					continue
				}
				place[p.FunctionResponse.ID] = len(out.Parts)
			}
			out.Parts = append(out.Parts, p)
		}
	}
	return &view{content: out}
}

// cleaned returns copies of what is left to show.
func cleaned(views []*view) []*genai.Content {
	var out []*genai.Content
	for _, v := range views {
		if c := cleanContent(v.content); c != nil {
			out = append(out, c)
		}
	}
	return out
}

// cleanContent returns a copy without empty parts, without ids that the model did not
// give and without arguments and results that no document can hold, which were an
// error of their call; or nil if nothing is left.
func cleanContent(c *genai.Content) *genai.Content {
	c = session.CloneContent(c)
	c.Parts = slices.DeleteFunc(c.Parts, func(p *genai.Part) bool { return p == nil || reflect.ValueOf(*p).IsZero() })
	if len(c.Parts) == 0 {
		return nil
	}
	for _, p := range c.Parts {
		if call := p.FunctionCall; call != nil {
			if strings.HasPrefix(call.ID, callIDPrefix) {
				call.ID = ""
			}
			if call.Args != nil && !sayable(call.Args, 1) {
				call.Args = nil
			}
		}
		if r := p.FunctionResponse; r != nil {
			if strings.HasPrefix(r.ID, callIDPrefix) {
				r.ID = ""
			}
			if r.Response != nil && !sayable(r.Response, 1) {
				r.Response = map[string]any{"error": modelText(&CallError{Code: abi.GuestOutputInvalid})}
			}
		}
	}
	return c
}

// sayable reports whether a value at a depth can be part of what somebody says: it
// does not nest too deep, and JSON has words for it.
func sayable(v any, depth int) bool {
	switch v := v.(type) {
	case nil, bool, string, int, int64:
		return true
	case json.Number:
		_, err := abi.Canonical([]byte(v))
		return err == nil
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case map[string]any:
		if depth > abi.MaxDepth {
			return false
		}
		for _, member := range v {
			if !sayable(member, depth+1) {
				return false
			}
		}
		return true
	case []any:
		if depth > abi.MaxDepth {
			return false
		}
		for _, member := range v {
			if !sayable(member, depth+1) {
				return false
			}
		}
		return true
	}
	_, err := said(v)
	return err == nil
}
