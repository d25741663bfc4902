package flow

import (
	"context"
	"maps"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// merge makes one event of the results of a step, in call order, and records the
// questions they raised. A call whose question cannot be recorded is refused; the
// others stay. It returns nil if there is nothing to show.
func (s *step) merge(ctx context.Context, calls []*call) *batch {
	b := &batch{}
	for _, c := range calls {
		if s.stopped { // nobody will see the question: it is not asked
			c.asked = nil
		}
		if c.asked != nil {
			if err := s.recordQuestion(ctx, c.asked); err != nil {
				s.cfg.Logger.Error("question not recorded", "tool", c.fc.Name, "err", err)
				c.withhold(&CallError{Code: abi.StorageUnavailable, Err: err})
			}
		}
		if c.silent {
			b.open = b.open || c.spec.task
		} else {
			if b.event == nil {
				b.event = s.newEvent(s.agent.Name)
				b.event.Content = &genai.Content{Role: genai.RoleUser}
			}
			b.event.Content.Parts = append(b.event.Content.Parts, c.parts()...)
			mergeActions(&b.event.Actions, c.set)
			if c.spec.task && c.ended.Code == abi.OK {
				b.event.Author = userAuthor // as in ADK, where the outcome of a task is told to the agent
			}
		}
		if c.asked != nil {
			b.questions = append(b.questions, asked{*c.asked, c.set.RequestedConfirmations[c.fc.ID]})
		}
	}
	if b.event == nil && len(b.questions) == 0 && !b.open {
		return nil
	}
	return b
}

// parts are what the model, and with a result that is shown the user, gets of a call.
func (c *call) parts() []*genai.Part {
	parts := []*genai.Part{{FunctionResponse: &genai.FunctionResponse{ID: c.fc.ID, Name: c.fc.Name, Response: c.response}}}
	if text := resultText(c.response); c.spec.ShowResult && c.set.SkipSummarization && text != "" {
		parts = append(parts, genai.NewPartFromText(text))
	}
	return parts
}

// resultText is how a result is shown to a user: the text under its only member
// result, else all of it as JSON; nothing of an error and of an empty result.
func resultText(response map[string]any) string {
	if _, failed := response["error"]; failed || len(response) == 0 {
		return ""
	}
	if result, ok := response["result"]; ok && len(response) == 1 {
		switch result := result.(type) {
		case nil:
			return ""
		case string:
			return result
		}
	}
	data, err := abi.Marshal(response)
	if err != nil {
		return ""
	}
	return string(data)
}

// recordQuestion makes a question to a person pending.
func (s *step) recordQuestion(ctx context.Context, q *session.Question) error {
	if err := s.audit(ctx, questionRecord("confirmation.asked", *q, q.AskedBy)); err != nil {
		return err
	}
	if err := s.store.Ask(context.WithoutCancel(ctx), *q); err != nil {
		return err
	}
	if f := s.cfg.Observer.Asked; f != nil {
		s.watched("observer", func() { f(*q) })
	}
	return nil
}

// withhold shows an error in the place of what a call led to.
func (c *call) withhold(err *CallError) {
	c.response, c.silent = map[string]any{"error": modelText(err)}, false
	c.set, c.asked = session.Actions{}, nil
}

// mergeActions adds what a later call did to what earlier ones did: flags by or,
// the last transfer, state maps member by member, and the newest version of each
// artifact.
func mergeActions(into *session.Actions, a session.Actions) {
	into.SkipSummarization = into.SkipSummarization || a.SkipSummarization
	into.Escalate = into.Escalate || a.Escalate
	if a.TransferToAgent != "" {
		into.TransferToAgent = a.TransferToAgent
	}
	if len(a.StateDelta) > 0 && into.StateDelta == nil {
		into.StateDelta = map[string]any{}
	}
	mergeState(into.StateDelta, a.StateDelta)
	if len(a.ArtifactDelta) > 0 && into.ArtifactDelta == nil {
		into.ArtifactDelta = map[string]int64{}
	}
	for name, version := range a.ArtifactDelta {
		into.ArtifactDelta[name] = max(into.ArtifactDelta[name], version)
	}
	if len(a.RequestedConfirmations) > 0 && into.RequestedConfirmations == nil {
		into.RequestedConfirmations = map[string]session.Confirmation{}
	}
	maps.Copy(into.RequestedConfirmations, a.RequestedConfirmations)
}

// mergeState goes into values that are maps on both sides; otherwise the later
// value wins.
func mergeState(into, from map[string]any) {
	for key, value := range from {
		a, oldMap := into[key].(map[string]any)
		b, newMap := value.(map[string]any)
		if oldMap && newMap {
			mergeState(a, b)
		} else {
			into[key] = value
		}
	}
}

// newQuestion is the record of what a person is asked about this call.
func (c *call) newQuestion(hint string) *session.Question {
	args := c.args
	if args == nil { // asked by a hook, before the arguments were judged
		args, _ = canonicalArgs(c.seen.Args)
	}
	given, err := canonicalArgs(c.fc.Args)
	if err != nil {
		given = args
	}
	c.mu.Lock()
	asker := c.asker
	c.mu.Unlock()
	now := c.cfg.Now()
	return &session.Question{ID: "cnf-" + newID(), State: session.Pending, Session: c.key, Run: c.id, Agent: c.agent.Name, Call: c.fc.ID, Tool: c.fc.Name,
		Module: c.spec.Module, Args: args, Given: given, ArgsSHA256: abi.Digest(args), Policy: c.policy, Hint: hint,
		Asked: now, AskedBy: asker, Expires: now.Add(c.cfg.Expires)}
}
