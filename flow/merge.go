package flow

import (
	"context"
	"fmt"
	"maps"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// merge makes one event of the results of a step, in call order, and records the
// questions they raised.
func (s *step) merge(ctx context.Context, calls []*call) (*batch, error) {
	b := &batch{}
	for _, c := range calls {
		if !c.silent {
			if b.event == nil {
				b.event = s.newEvent(s.agent.Name)
				b.event.Content = &genai.Content{Role: genai.RoleUser}
			}
			b.event.Content.Parts = append(b.event.Content.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{
				ID: c.fc.ID, Name: c.fc.Name, Response: c.response}})
			mergeActions(&b.event.Actions, c.set)
		}
		if c.asked == nil {
			continue
		}
		rec := s.record("confirmation.asked", c.asked.ID)
		rec.Call, rec.Module, rec.ArgsSHA256 = c.asked.Call, c.asked.Module, c.asked.ArgsSHA256
		if err := s.audit(ctx, rec); err != nil {
			return nil, err
		}
		if err := s.store.Ask(ctx, *c.asked); err != nil {
			return nil, fmt.Errorf("question about %s: %w", c.asked.Tool, err)
		}
		if f := s.cfg.Observer.Asked; f != nil {
			f(*c.asked)
		}
		b.questions = append(b.questions, asked{*c.asked, c.set.RequestedConfirmations[c.fc.ID]})
	}
	if b.event == nil && len(b.questions) == 0 {
		return nil, nil
	}
	return b, nil
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
	now := c.cfg.Now()
	return &session.Question{ID: "cnf-" + newID(), Session: c.key, Run: c.id, Agent: c.agent.Name, Call: c.fc.ID, Tool: c.fc.Name,
		Module: c.spec.Module, Args: args, Given: given, ArgsSHA256: abi.Digest(args), Policy: c.policy, Hint: hint,
		Asked: now, Expires: now.Add(c.cfg.Expires)}
}
