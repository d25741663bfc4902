package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// This file is where guards judge what is said: the user's message, what a model
// is asked, and what is said to the user. Calls and their results are judged by
// the dispatcher. Hooks have always had their turn before.

// question returns a question without its document.
func (r *run) question(phase abi.Phase, agent string, step int) abi.Question {
	return abi.Question{Phase: phase, Now: r.cfg.Now().UTC().Format(time.RFC3339Nano), Tenant: r.key.Tenant, App: r.key.App,
		Agent: agent, User: abi.User{ID: r.key.User, Roles: r.roles}, Session: r.key.ID, Run: r.outermost(), Step: step}
}

// judgeText asks the guards of a phase that is not about a call. It returns the
// document as they left it, and how many characters of a stream they hold back.
func (r *run) judgeText(ctx context.Context, q abi.Question, v any, recheck func(json.RawMessage) error) (doc json.RawMessage, rewritten bool, hold int, refused *CallError) {
	given, err := abi.Marshal(v)
	if err != nil {
		return nil, false, 0, &CallError{Code: abi.PolicyUnavailable, Err: fmt.Errorf("%s: %w", q.Phase, err)}
	}
	doc, _, d, err := r.judge(ctx, q, given, capability.Set{}, nil, func(doc json.RawMessage) error {
		if len(doc) == 0 || doc[0] != '{' {
			return fmt.Errorf("%s: want an object", q.Phase)
		}
		return recheck(doc)
	})
	if err != nil {
		return nil, false, 0, &CallError{Code: abi.PolicyUnavailable, Err: err}
	}
	if f := r.cfg.Observer.Decided; f != nil && (!q.Partial || d.Ruling == abi.RulingDeny) {
		r.watched("observer", func() { f(CallInfo{Session: r.key, Run: r.id, Agent: q.Agent, Step: q.Step}, d) })
	}
	if d.Ruling == abi.RulingDeny {
		return nil, false, 0, d.refusal()
	}
	return doc, string(doc) != string(given), d.Hold, nil
}

// refusal is the event that stands for what guards refused.
func (p place) refusal(author string, err *CallError) *session.Event {
	ev := p.newEvent(author)
	ev.Response = refusedResponse(err)
	p.note(ev)
	return ev
}

func refusedResponse(err *CallError) session.Response {
	return session.Response{ErrorCode: string(err.Code), ErrorMessage: strings.TrimPrefix(modelText(err), string(err.Code)+": ")}
}

// isRefusal reports whether a response stands for what guards refused.
func isRefusal(r *session.Response) bool {
	return r.ErrorCode == string(abi.PolicyDenied) || r.ErrorCode == string(abi.PolicyUnavailable)
}

// judgeMessage asks about a user's message: first about each result that it brings
// for a long-running call, then about all of it. Guards may change what it says,
// not what it answers.
func (r *run) judgeMessage(ctx context.Context, agent string, message *genai.Content) (*genai.Content, *CallError) {
	cleanText(message)
	if r.guarded(abi.PhaseResult) {
		for _, p := range message.Parts {
			if p != nil && p.FunctionResponse != nil && p.FunctionResponse.Name != confirmationCall {
				r.judgeCompletion(ctx, agent, p.FunctionResponse)
			}
		}
	}
	if !r.guarded(abi.PhaseMessage) {
		return message, nil
	}
	var edited *genai.Content
	_, rewritten, _, refused := r.judgeText(ctx, r.question(abi.PhaseMessage, agent, 0), message, func(doc json.RawMessage) (err error) {
		if edited, err = decodeExact[genai.Content](doc); err == nil && !sameAnswers(message, edited) {
			err = errors.New("message: its function responses must stay as they are")
		}
		return err
	})
	if refused != nil {
		return nil, refused
	}
	if rewritten {
		message = edited
	}
	return message, nil
}

// judgeCompletion asks about a result that comes with a message. One that is
// refused, or has parts beside the response that guards judge, becomes an error.
func (r *run) judgeCompletion(ctx context.Context, agent string, resp *genai.FunctionResponse) {
	q := r.question(abi.PhaseResult, agent, 0)
	q.Call = &abi.CallFacts{ID: resp.ID, Tool: resp.Name, Effects: abi.Once, Args: json.RawMessage("{}")}
	if ev := eventOfCall(r.events(), resp.ID); ev != nil {
		i := slices.IndexFunc(ev.Calls(), func(c *genai.FunctionCall) bool { return c.ID == resp.ID })
		made := ev.Calls()[i]
		q.Agent, q.Call.Tool = ev.Author, made.Name
		if args, err := canonicalArgs(made.Args); err == nil {
			q.Call.Args = args
		}
		if spec := r.specOf(ev.Author, made.Name); spec != nil {
			q.Call.Known, q.Call.Effects, q.Call.Module = true, spec.effects(), spec.Module
			q.Call.DefinitionSHA256, _ = spec.Definition() // empty is a definition that nobody knows
		}
	}
	if resp.Response == nil {
		resp.Response = map[string]any{}
	}
	doc, rewritten, _, refused := r.judgeText(ctx, q, resp.Response, func(json.RawMessage) error { return nil })
	if refused == nil && rewritten {
		var v any
		var err error
		if v, err = abi.Unmarshal(doc); err != nil {
			refused = &CallError{Code: abi.PolicyUnavailable, Err: err}
		} else {
			resp.Response = v.(map[string]any) // an object: judgeText checked
		}
	}
	if judges := func(g Guard) bool { return slices.Contains(g.Phases(), abi.PhaseResult) }; refused == nil && len(resp.Parts) > 0 && slices.ContainsFunc(r.cfg.Guards, judges) {
		refused = &CallError{Code: abi.PolicyUnavailable, Err: fmt.Errorf("result of call %s: %d parts beside its response, which no guard can judge", resp.ID, len(resp.Parts))}
	}
	if refused != nil {
		r.cfg.Logger.Warn("result refused", "call", resp.ID, "err", refused)
		resp.Response, resp.Parts = map[string]any{"error": modelText(refused)}, nil
	}
}

// specOf returns the spec of a tool that an agent lists, nil if it lists none of
// that name.
func (r *Runner) specOf(agent, tool string) *Spec {
	if a := r.tree.named[agent]; a != nil {
		for _, t := range a.Tools {
			if t.Spec().Name == tool {
				return t.Spec()
			}
		}
	}
	return nil
}

// sameAnswers reports whether two contents have the same calls and responses, in
// the same order.
func sameAnswers(a, b *genai.Content) bool {
	pick := func(c *genai.Content) string {
		var all []any
		for _, p := range parts(c) {
			if p != nil && (p.FunctionResponse != nil || p.FunctionCall != nil) {
				all = append(all, p.FunctionResponse, p.FunctionCall)
			}
		}
		data, err := abi.Marshal(all)
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	return pick(a) == pick(b)
}

// cleanText makes texts what their JSON says: a byte that is no UTF-8 would be one
// thing to a guard and another to a model.
func cleanText(c *genai.Content) {
	for _, p := range parts(c) {
		if p != nil {
			p.Text = strings.ToValidUTF8(p.Text, "\uFFFD")
		}
	}
}

// A requestDocument is a request as hooks and guards in guests see it. Where
// requests go, and with which headers, is the host's business.
type requestDocument struct {
	Model    string                       `json:"model,omitempty"`
	Contents []*genai.Content             `json:"contents"`
	Config   *genai.GenerateContentConfig `json:"config,omitempty"`
}

// Document returns the request in the JSON form that hooks and guards see.
func (r *Request) Document() (json.RawMessage, error) {
	doc := requestDocument{Model: r.Model, Contents: r.Contents}
	if r.Config != nil {
		config := *r.Config
		config.HTTPOptions = nil
		doc.Config = &config
	}
	return abi.Marshal(doc)
}

// SetDocument makes the request what an edited document says. The model, the
// options of the connection and what can be executed stay as they are.
func (r *Request) SetDocument(doc json.RawMessage) error {
	edited, err := decodeExact[requestDocument](doc)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	r.Contents = edited.Contents
	if edited.Config != nil {
		if r.Config != nil {
			edited.Config.HTTPOptions = r.Config.HTTPOptions
		}
		r.Config = edited.Config
	}
	return nil
}

// judgeRequest asks about what a model is about to be asked.
func (r *run) judgeRequest(ctx context.Context, agent string, step int, req *Request) *CallError {
	if !r.guarded(abi.PhaseRequest) {
		return nil
	}
	for i, c := range req.Contents {
		if c != nil {
			req.Contents[i] = session.CloneContent(c) // history belongs to the session
			cleanText(req.Contents[i])
		}
	}
	doc, err := req.Document()
	if err != nil {
		return &CallError{Code: abi.PolicyUnavailable, Err: fmt.Errorf("request: %w", err)}
	}
	var before *requestDocument
	given := doc
	doc, rewritten, _, refused := r.judgeText(ctx, r.question(abi.PhaseRequest, agent, step), doc, func(doc json.RawMessage) error {
		edited, err := decodeExact[requestDocument](doc)
		if err == nil && before == nil {
			before, err = decodeExact[requestDocument](given)
		}
		if err == nil {
			err = narrowsRequest(before, edited)
		}
		before = edited
		return err
	})
	if refused == nil && rewritten {
		if err := req.SetDocument(doc); err != nil {
			refused = &CallError{Code: abi.PolicyUnavailable, Err: err}
		}
	}
	return refused
}

// judgeResponse asks about what is said, as a whole or in part.
func (r *run) judgeResponse(ctx context.Context, agent string, step int, resp *session.Response) (out *session.Response, hold int, refused *CallError) {
	cleanText(resp.Content)
	q := r.question(abi.PhaseResponse, agent, step)
	q.Partial = resp.Partial
	edited := resp
	_, rewritten, hold, refused := r.judgeText(ctx, q, resp, func(doc json.RawMessage) error {
		before := edited
		var err error
		if edited, err = decodeExact[session.Response](doc); err == nil {
			err = narrowsResponse(before, edited)
		}
		return err
	})
	if refused != nil || !rewritten {
		return resp, hold, refused
	}
	edited.Partial = resp.Partial
	return edited, hold, nil
}

// judged asks about what is said in an event that no response of the model is, by a
// hook in an agent's place or through a tool, before anything is made of it. It returns
// the event as guards left it. The step is 0 outside of steps.
func (p place) judged(ctx context.Context, ev *session.Event, step int) *session.Event {
	if !p.guarded(abi.PhaseResponse) {
		return ev
	}
	resp, _, refused := p.judgeResponse(ctx, ev.Author, step, &ev.Response)
	if refused != nil {
		return p.refusal(ev.Author, refused)
	}
	ev.Response = *resp
	p.note(ev)
	return ev
}

// note remembers what an event says, because guards have let it pass, or because no
// guard of responses is asked about it: results and questions, and what the host
// says by itself.
func (r *run) note(ev *session.Event) {
	if !r.guarded(abi.PhaseResponse) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed[ev.ID] = r.saying(ev)
}

// saying is a digest of what an event says. Where no hook could make it say something
// else it is empty, and no work.
func (r *run) saying(ev *session.Event) string {
	if !r.editsEvents() {
		return ""
	}
	data, err := abi.Marshal(&ev.Response)
	if err != nil {
		return newNonce() // equal to no digest that was noted
	}
	return abi.Digest(data)
}

// judgeSaid asks about what an event says, unless just that was noted: hooks may have
// changed it, or said it themselves. It returns nil for a part of a stream that has
// to stay back.
func (r *run) judgeSaid(ctx context.Context, ev *session.Event) *session.Event {
	if !r.guarded(abi.PhaseResponse) {
		return ev
	}
	r.mu.Lock()
	passed, noted := r.passed[ev.ID]
	delete(r.passed, ev.ID)
	r.mu.Unlock()
	if noted && passed == r.saying(ev) || !says(&ev.Response) {
		return ev
	}
	out := ev.Clone()
	resp, hold, refused := r.judgeResponse(ctx, ev.Author, 0, &out.Response)
	switch {
	case refused != nil:
		out.Response, out.Actions, out.LongRunningToolIDs = refusedResponse(refused), session.Actions{}, nil
	case hold > 0 && ev.Partial:
		return nil // what a hook made of a part has no rest that could be awaited
	default:
		out.Response = *resp
	}
	return out
}

// says reports whether a response has anything but flags and what was used.
func says(r *session.Response) bool {
	return *r != session.Response{Partial: r.Partial, TurnComplete: r.TurnComplete, Interrupted: r.Interrupted, Usage: r.Usage}
}

// judgeShown asks about results that are shown to the user as text, in an event of
// results. It leaves there what may be shown.
func (s *step) judgeShown(ctx context.Context, ev *session.Event) *CallError {
	if !s.guarded(abi.PhaseResponse) {
		return nil
	}
	isText := func(p *genai.Part) bool { return p.FunctionResponse == nil }
	texts := &session.Response{Content: &genai.Content{Role: genai.RoleModel}}
	for _, p := range ev.Content.Parts {
		if isText(p) {
			texts.Content.Parts = append(texts.Content.Parts, p)
		}
	}
	if len(texts.Content.Parts) == 0 {
		return nil
	}
	ev.Content.Parts = slices.DeleteFunc(ev.Content.Parts, isText)
	shown, _, refused := s.judgeResponse(context.WithoutCancel(ctx), s.agent.Name, s.number, texts)
	if refused == nil {
		ev.Content.Parts = append(ev.Content.Parts, parts(shown.Content)...)
	}
	return refused
}

func jsonDigest(c *genai.Content) string {
	data, err := abi.Marshal(c)
	if err != nil {
		return "" // equal to no digest that was noted
	}
	return abi.Digest(data)
}

// A judgedModel is a model whose requests and responses guards judge, for what is
// asked beside the steps of an agent.
type judgedModel struct {
	Model
	run   *run
	agent string
}

// Generate implements [Model]. What guards refuse is an error.
func (m judgedModel) Generate(ctx context.Context, req *Request, stream bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		if refused := m.run.judgeRequest(ctx, m.agent, 0, req); refused != nil {
			yield(nil, refused)
			return
		}
		for resp, err := range m.Model.Generate(ctx, req, stream) {
			if err == nil && resp != nil && m.run.guarded(abi.PhaseResponse) {
				var refused *CallError
				if resp, _, refused = m.run.judgeResponse(ctx, m.agent, 0, cloneResponse(resp)); refused != nil {
					yield(nil, refused)
					return
				}
			}
			if !yield(resp, err) {
				return
			}
		}
	}
}

// decodeExact decodes what a guest or guard wrote; numbers keep their text.
func decodeExact[T any](raw json.RawMessage) (*T, error) {
	v := new(T)
	return v, abi.DecodeKnown(raw, v)
}
