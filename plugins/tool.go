package plugins

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

type guestTool struct {
	plugin *Plugin
	tool   abi.Tool
	spec   *flow.Spec
}

func (t *guestTool) Spec() *flow.Spec { return t.spec }

// A guestHandler is a tool that answers with one result.
type guestHandler struct{ guestTool }

func (t *guestHandler) Run(ctx *flow.ToolContext, permit flow.Permit) (flow.Outcome, error) {
	return t.call(ctx, permit, nil)
}

// A guestStream is a tool that answers in chunks.
type guestStream struct{ guestTool }

func (t *guestStream) Stream(ctx *flow.ToolContext, permit flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		stopped := false
		outcome, err := t.call(ctx, permit, func(_ context.Context, chunk json.RawMessage) error {
			text := chunkText(chunk)
			if f := t.plugin.cfg.Chunk; f != nil {
				f(t.spec.Name, ctx.CallID(), text)
			}
			if stopped || !yield(flow.Chunk{Text: text}, nil) {
				stopped = true
				return errors.New("nobody listens")
			}
			return nil
		})
		switch {
		case stopped:
		case err != nil:
			yield(flow.Chunk{Receipt: outcome.Receipt}, err)
		default:
			yield(flow.Chunk{Receipt: outcome.Receipt}, nil)
		}
	}
}

// chunkText is what the model reads of a chunk: a text as it is, anything else
// as JSON.
func chunkText(chunk json.RawMessage) string {
	var s string
	if json.Unmarshal(chunk, &s) == nil {
		return s
	}
	return string(chunk)
}

func (t *guestTool) call(ctx *flow.ToolContext, permit flow.Permit, emit func(context.Context, json.RawMessage) error) (flow.Outcome, error) {
	p := t.plugin
	input, now := []byte(permit.Args()), p.cfg.Now()
	if !t.tool.Raw {
		call := abi.ToolCall{Format: abi.Version, Kind: abi.KindTool, Tool: t.tool.Name, ID: ctx.CallID(), Args: permit.Args(), Config: p.cfg.Values,
			Now: now.UTC().Format(time.RFC3339Nano)}
		if c := ctx.Confirmation(); c != nil {
			payload, err := abi.Marshal(c.Payload)
			if err != nil {
				return flow.Outcome{}, err
			}
			call.Confirmation = &abi.Confirmation{Confirmed: c.Confirmed, Hint: c.Hint, Payload: payload}
		}
		var err error
		if input, err = abi.Marshal(call); err != nil {
			return flow.Outcome{}, err
		}
	}
	output, receipt, err := p.run(&ctx.CallbackContext, &host.Call{
		Kind: abi.KindTool, Export: cmp.Or(t.tool.Export, abi.ExportCall), Input: input,
		Grants: permit.Grants(), Limits: p.cfg.Limits, Now: now,
		Access: host.Access{State: stateOf{&ctx.CallbackContext}, Artifacts: &artifactsOf{ctx: &ctx.CallbackContext}, Actions: actionsOf{ctx}, Emit: emit, Egress: p.cfg.Egress},
	}, t.spec.Name, ctx.CallID())
	outcome := flow.Outcome{Receipt: receipt}
	if err != nil {
		return outcome, err
	}
	// fail is the end of a call whose guest answered, but with no result.
	fail := func(code abi.Code, text string, err error) (flow.Outcome, error) {
		receipt.Code = code
		return flow.Outcome{Receipt: receipt}, &flow.CallError{Code: code, Text: text, Err: err, Receipt: receipt}
	}
	if t.tool.Raw {
		if outcome.Result, err = rawResult(t.tool.Output, output); err != nil {
			return fail(abi.GuestOutputInvalid, "", err)
		}
		return outcome, nil
	}
	result, err := abi.ParseToolResult(output)
	if err != nil {
		return fail(abi.GuestOutputInvalid, "", err)
	}
	if f := result.Fail; f != nil {
		return fail(abi.GuestError, cmp.Or(f.Message, f.Code), &FailError{f.Code})
	}
	outcome.Result = result.Result
	return outcome, nil
}

// A FailError is the cause of a call that the guest itself ended as a failure.
type FailError struct {
	Code string // the guest's own, empty if it gave none; see [abi.Failure]
}

func (e *FailError) Error() string {
	if e.Code == "" {
		return "the guest failed and gave no code of its own"
	}
	return fmt.Sprintf("the guest failed with %q", e.Code)
}

// rawResult returns what a plain Extism export answered, in canonical form: JSON,
// or text if the tool has a schema of its result, and that may be a string. For one whose
// schema says string, what is no JSON string is text.
func rawResult(schema json.RawMessage, output []byte) (json.RawMessage, error) {
	var says struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(schema, &says) // no schema says nothing
	canonical, err := abi.Canonical(output)
	if err == nil && (says.Type != "string" || canonical[0] == '"') {
		return canonical, nil
	}
	switch {
	case len(schema) == 0:
		return nil, fmt.Errorf("%w; a tool that answers with text has an output schema, such as {\"type\":\"string\"}", err)
	case !utf8.Valid(output):
		return nil, fmt.Errorf("%w, and not UTF-8", err)
	}
	return abi.Marshal(string(output))
}

// run calls the guest and turns what is not an answer into a [flow.CallError].
// Host calls that were refused are audited, and answers in which a secret was
// found; if they cannot be, the call fails.
func (p *Plugin) run(cc *flow.CallbackContext, call *host.Call, tool, id string) ([]byte, host.Receipt, error) {
	call.Config, call.Seed = p.cfg.Values, p.cfg.Seed
	call.Access.Secrets, call.Access.Memory = p.cfg.Secrets, memoryOf{cc}
	if key := cc.Session(); p.cfg.KV != nil {
		call.Access.KV = p.cfg.KV.Scope(host.KVScope{Tenant: key.Tenant, App: key.App, Owner: "plugin " + p.cfg.Name})
	}
	if call.Now.IsZero() {
		call.Now = p.cfg.Now()
	}
	logger := p.cfg.Logger.With("plugin", p.cfg.Name, "tool", tool, "call", id)
	call.Access.Log = func(level, message string) { logger.Log(cc, logLevel(level), "guest says", "text", message) }
	var noted []audit.Record
	call.TraceBodies = p.cfg.Trace != nil && p.cfg.TraceBodies
	call.Trace = func(hc host.HostCall) {
		if hc.Code == abi.CapabilityDenied || hc.Code == abi.EgressDenied {
			noted = append(noted, audit.Record{Action: "capability.denied", Capability: hc.Need, Decision: "deny", Code: string(hc.Code),
				Why: hc.Name + " " + hc.Detail})
		}
		if len(hc.Scrubbed) > 0 {
			noted = append(noted, audit.Record{Action: "secret.scrubbed", Code: string(hc.Code),
				Why: "the answer to " + hc.Name + " " + hc.Detail + " held " + strings.Join(hc.Scrubbed, ", ")})
		}
		if p.cfg.Trace != nil {
			p.cfg.Trace(tool, id, hc)
		}
	}
	reply, err := p.module.Call(cc, call)
	var receipt host.Receipt
	guestErr, isGuest := errors.AsType[*host.GuestError](err)
	switch {
	case err == nil:
		receipt = reply.Receipt
	case isGuest:
		receipt = guestErr.Receipt
	default:
		return nil, receipt, err
	}
	for _, record := range noted { // as many as a call may make host calls
		if p.cfg.Audit == nil {
			break
		}
		key := cc.Session()
		record.Tenant, record.Session, record.Run = key.Tenant, key.ID, cc.Run()
		record.Actor, record.Target, record.Call, record.Module = p.cfg.Name, tool, id, receipt.Module
		if err := p.cfg.Audit.Append(context.WithoutCancel(cc), record); err != nil {
			return nil, receipt, &flow.CallError{Code: abi.StorageUnavailable, Err: err, Receipt: receipt}
		}
	}
	if isGuest {
		return nil, receipt, callError(tool, guestErr)
	}
	return reply.Output, receipt, nil
}

// callError says what the model may read of a failed guest call: the guest's own
// text if it reported one or panicked, else the code's sentence.
func callError(tool string, e *host.GuestError) *flow.CallError {
	out := &flow.CallError{Code: e.Code, Receipt: e.Receipt, Err: fmt.Errorf("%s", cmp.Or(e.Detail, e.Message))}
	switch {
	case e.Code == abi.GuestError:
		out.Text = e.Message
	case e.Code == abi.GuestTrap:
		if text, ok := panicText(e.Detail); ok {
			out.Text = flow.PanicText(tool, text)
		}
	}
	return out
}

// panicText finds the text of a Go panic in what a guest wrote to standard error.
// The stack that follows is for the operator alone. In a detail, which is one
// line, the end of a line is escaped.
func panicText(detail string) (string, bool) {
	_, text, ok := strings.Cut(detail, "panic: ")
	if !ok {
		return "", false
	}
	text, _, _ = strings.Cut(text, `\n`)
	return strings.TrimSuffix(text, " [recovered]"), text != ""
}
