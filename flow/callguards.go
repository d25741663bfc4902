package flow

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// This file is where guards judge a call and its result, on the road of dispatch.go.

// judgeCall asks the guards about the call. The error of a refusal is a *denial.
func (c *call) judgeCall(args json.RawMessage) (json.RawMessage, *Decision, error) {
	if c.ctx.Err() != nil {
		return nil, nil, &denial{err: gaveUp(c.ctx)}
	}
	c.args, c.info.ArgsSHA256 = args, abi.Digest(args)
	if !c.guarded(abi.PhaseCall) {
		d := allowed(abi.PhaseCall)
		c.observe(d)
		return args, d, nil
	}
	return c.askAboutCall(args)
}

func (c *call) askAboutCall(args json.RawMessage) (json.RawMessage, *Decision, error) {
	q := c.question(abi.PhaseCall)
	rewritten, grants, d, err := c.judge(c.ctx, q, args, c.grants, c.approved, func(doc json.RawMessage) error {
		if len(doc) == 0 || doc[0] != '{' {
			return errors.New("arguments: want an object")
		}
		if err := abi.CheckDepth(doc); err != nil {
			return err
		}
		return c.checkArgs(doc)
	})
	if err != nil {
		return nil, nil, &denial{err: &CallError{Code: abi.PolicyUnavailable, Err: err}}
	}
	c.args, c.info.ArgsSHA256, c.grants = rewritten, abi.Digest(rewritten), grants
	c.observe(d)
	if d.Ruling == abi.RulingDeny {
		return nil, nil, &denial{err: d.refusal()}
	}
	if string(rewritten) != string(args) {
		if v, err := abi.Unmarshal(rewritten); err == nil {
			c.seen.Args, _ = v.(map[string]any)
		}
	}
	return rewritten, d, nil
}

// judgeResult asks the guards about what the model would be shown, and sees to it
// that the model is not shown too much.
func (c *call) judgeResult(response map[string]any, foreign bool) (map[string]any, *denial) {
	response, doc, denied := c.judgeDocument(response, foreign)
	if denied != nil || len(doc) <= MaxShown {
		return response, denied
	}
	return c.keepWhole(doc)
}

// judgeDocument asks the guards about a response, and returns it as they left it,
// also as JSON. A response that Go code made becomes what its JSON says.
func (c *call) judgeDocument(response map[string]any, foreign bool) (_ map[string]any, _ json.RawMessage, denied *denial) {
	doc, err := said(response)
	if err != nil {
		return nil, nil, &denial{err: &CallError{Code: abi.GuestOutputInvalid, Err: err}}
	}
	if denied := c.notTooLarge(doc); denied != nil {
		return nil, nil, denied
	}
	rewritten := json.RawMessage(doc)
	if c.guarded(abi.PhaseResult) {
		if rewritten, denied = c.askAboutResult(doc); denied != nil {
			return nil, nil, denied
		}
	} else if c.cfg.Observer.Decided != nil {
		c.observe(allowed(abi.PhaseResult))
	}
	if !foreign && string(rewritten) == string(doc) {
		return response, doc, nil
	}
	if denied := c.notTooLarge(rewritten); denied != nil {
		return nil, nil, denied
	}
	v, err := abi.Unmarshal(rewritten)
	if err != nil {
		return nil, nil, &denial{err: &CallError{Code: abi.PolicyUnavailable, Err: err}}
	}
	return v.(map[string]any), rewritten, nil
}

func (c *call) askAboutResult(doc json.RawMessage) (json.RawMessage, *denial) {
	q := c.question(abi.PhaseResult)
	if q.Call.Args = c.args; q.Call.Args == nil { // no guard has seen them: a hook answered, or they are not valid
		var err error
		if q.Call.Args, err = canonicalArgs(c.seen.Args); err != nil {
			q.Call.Args = json.RawMessage("{}")
		}
	}
	// What has happened is judged even when the run has ended since.
	rewritten, _, d, err := c.judge(c.past, q, doc, c.grants, func(json.RawMessage) *abi.Approval { return c.approved(q.Call.Args) }, func(doc json.RawMessage) error {
		if len(doc) == 0 || doc[0] != '{' {
			return errors.New("result: want an object")
		}
		return abi.CheckDepth(doc)
	})
	if err != nil {
		return nil, &denial{err: &CallError{Code: abi.PolicyUnavailable, Err: err}}
	}
	c.observe(d)
	if d.Ruling != abi.RulingAllow {
		return nil, &denial{err: d.refusal()}
	}
	return rewritten, nil
}

func (c *call) question(phase abi.Phase) abi.Question {
	q := c.run.question(phase, c.agent.Name, c.number)
	q.Call = &abi.CallFacts{ID: c.fc.ID, Tool: c.fc.Name, Known: c.tool != nil, Effects: c.spec.effects(), Module: c.spec.Module, DefinitionSHA256: c.spec.definition}
	return q
}

// approved says who approved this very call, with these arguments; nil if nobody
// has.
func (c *call) approved(args json.RawMessage) *abi.Approval {
	if c.approval == nil || !c.approval.answer.Confirmed || c.approval.differs(c, args) != "" {
		return nil
	}
	q := c.approval.question
	return &abi.Approval{At: q.Decided.UTC().Format(time.RFC3339), By: q.By}
}

func (c *call) observe(d *Decision) {
	if f := c.cfg.Observer.Decided; f != nil {
		c.watched("observer", func() { f(c.info, d) })
	}
}
