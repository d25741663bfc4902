package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// This file is how a call ends, on the road of dispatch.go: what becomes of a result or an
// error, and what is kept and shown of it.

// PanicText is what the model reads when a tool panics.
func PanicText(tool, text string) string {
	return fmt.Sprintf("panic in tool %q: %s", tool, escape(text, MaxErrorText))
}

// checkResult turns a handler's result into the object the model is shown.
func (c *call) checkResult(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := abi.Unmarshal(raw)
	if err != nil {
		return nil, &CallError{Code: abi.GuestOutputInvalid, Err: err}
	}
	if v == nil {
		return nil, nil
	}
	if c.spec.output != nil {
		if err := Validate(c.spec.output, raw); err != nil {
			ce := &CallError{Code: abi.GuestOutputInvalid, Text: err.Error()} // ADK's text
			if found := FindMismatch(c.spec.output, raw); found != nil {
				ce.Err = found
			}
			return nil, ce
		}
	}
	if m, ok := v.(map[string]any); ok {
		return m, nil
	}
	return map[string]any{"result": v}, nil // which counts as one object more
}

// onError asks the on-error hooks about an error.
func (c *call) onError(cause error) (map[string]any, error, bool) {
	result, err := c.firstTool(func(h Hooks) (map[string]any, error) {
		if h.OnToolError == nil {
			return nil, nil
		}
		return h.OnToolError(c.tc, c.seen, hookError(cause))
	})
	if result == nil && err == nil {
		return nil, cause, false
	}
	return result, err, true
}

// after runs the after-tool hooks.
func (c *call) after(result map[string]any, cause error) (map[string]any, error, bool) {
	var shown error
	if cause != nil {
		shown = hookError(cause)
	}
	if !slices.ContainsFunc(c.hooks, func(h Hooks) bool { return h.AfterTool != nil }) {
		return result, cause, false
	}
	before := jsonText(result)
	replaced, err := c.firstTool(func(h Hooks) (map[string]any, error) {
		if h.AfterTool == nil {
			return nil, nil
		}
		return h.AfterTool(c.tc, c.seen, result, shown)
	})
	if replaced != nil || err != nil {
		return replaced, err, true
	}
	return result, cause, jsonText(result) != before
}

// hookError is an error as hooks see it: with the text that the model would read.
func hookError(err error) error { return shownError{err} }

type shownError struct{ err error }

func (e shownError) Error() string { return modelText(e.err) }
func (e shownError) Unwrap() error { return e.err }

func (c *call) firstTool(f func(Hooks) (map[string]any, error)) (map[string]any, error) {
	for _, h := range c.hooks {
		v, err := contain(hookTitle(h.Name), func() (map[string]any, error) { return f(h) })
		if v != nil || err != nil {
			return v, err
		}
	}
	return nil, nil
}

// refuse ends the call with an error that no hook may change. Nothing that its
// hooks or its handler did to state or the run counts; what they saved as an
// artifact stays, and no event tells of it.
func (c *call) refuse(err *CallError) {
	if c.ended != nil {
		return
	}
	c.refused = true
	c.finish(map[string]any{"error": modelText(err)}, err, false)
}

// finish ends the call: its actions are closed, the end is audited, and the
// response is ready to be merged.
func (c *call) finish(response map[string]any, err error, silent bool) {
	c.set = c.acts.end()
	if c.refused {
		c.set = session.Actions{}
	}
	if confirmation, ok := c.set.RequestedConfirmations[c.fc.ID]; ok && c.asked == nil {
		c.asked = c.newQuestion(confirmation.Hint)
	}
	if unspent := c.spendUnmade(response, err); unspent != nil {
		c.set, c.asked = session.Actions{}, nil
		response, err, silent = map[string]any{"error": modelText(unspent)}, unspent, isCode(unspent, abi.ConfirmationDecided)
	}
	c.response, c.silent = response, silent
	c.ended = &CallResult{Code: codeOf(err), Err: err, Response: response, Receipt: c.receipt, Ran: c.ran, Took: since(c.began)}
	rec := c.record("call.end", c.fc.Name)
	rec.Call, rec.Module, rec.ArgsSHA256, rec.Code = c.fc.ID, c.spec.Module, c.info.ArgsSHA256, string(c.ended.Code)
	rec.Decision = map[bool]string{true: "ran", false: "not run"}[c.ran]
	if err != nil {
		rec.Why = err.Error()
	}
	if err := c.audit(c.past, rec); err != nil {
		failed := &CallError{Code: abi.StorageUnavailable, Err: err}
		c.withhold(failed)
		c.ended.Code, c.ended.Err, c.ended.Response = failed.Code, failed, c.response
	}
	if f := c.cfg.Observer.Finished; f != nil {
		c.watched("observer", func() { f(c.info, *c.ended) })
	}
}

// stopStreaming is answered by the runtime: outside live sessions nothing streams
// in the background.
const stopStreaming = "stop_streaming"

func (c *call) notFound() string {
	return fmt.Sprintf(`tool '%s' not found.
Available tools: %s

Possible causes:
  1. LLM hallucinated the function name - review agent instruction clarity
  2. Tool not registered - verify agent.tools list
  3. Name mismatch - check for typos

Suggested fixes:
  - Review agent instruction to ensure tool usage is clear
  - Verify tool is included in agent.tools list
  - Check for typos in function name`, escape(c.fc.Name, 128), strings.Join(c.table.names(), ", "))
}

// modelText is what the model reads of an error.
func modelText(err error) string {
	if ce, ok := errors.AsType[*CallError](err); ok {
		return escape(ce.modelText(), MaxErrorText)
	}
	return escape(err.Error(), MaxErrorText)
}

func codeOf(err error) abi.Code {
	if err == nil {
		return abi.OK
	}
	if ce, ok := errors.AsType[*CallError](err); ok {
		return ce.Code
	}
	return abi.ToolError
}

func isCode(err error, code abi.Code) bool {
	ce, ok := errors.AsType[*CallError](err)
	return ok && ce.Code == code
}
