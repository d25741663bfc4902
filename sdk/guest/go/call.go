package guest

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Call is one call of a tool or hook: who asks, and what the host does for it.
// It is used by the handler it was given to, while that runs. A host call whose
// capability was not granted returns an error that matches [ErrDenied] and has no
// effect.
type Call struct {
	wall         wall
	id           string
	agent        string
	cause        string
	config       map[string]string
	confirmation *Confirmation
}

// A wall is the host as seen from the guest.
type wall interface {
	// call makes a host call of abi.HostFunctions. The reply is the caller's.
	call(function string, request, body []byte) (reply []byte, err error)
	random(p []byte)
}

// A Confirmation is a person's answer to a question about a call.
type Confirmation = abi.Confirmation

// ID returns the id of the tool call. It is the same when the call is sent again,
// which makes it the idempotency key for the outside. It is empty at hook points
// other than those of tools.
func (c *Call) ID() string { return c.id }

// Agent returns the name of the agent at hook points; it is empty in a tool.
func (c *Call) Agent() string { return c.agent }

// Cause returns the error that a hook is told of, at OnModelError, OnToolError,
// AfterModel and AfterTool; it is empty when there was none.
func (c *Call) Cause() string { return c.cause }

// Config returns what the operator configured for the plugin under key, or "".
func (c *Call) Config(key string) string { return c.config[key] }

// Confirmation returns a person's answer about this call, nil if nobody was asked.
// The host lets only a confirmed call through, unless it was the tool that asked.
func (c *Call) Confirmation() *Confirmation { return c.confirmation }

// AskConfirmation asks a person about this call. The tool should return at once;
// it is called again with the answer in [Call.Confirmation]. payload is shown
// beside the hint; it may be nil.
func (c *Call) AskConfirmation(hint string, payload any) error {
	request := abi.ConfirmRequest{Hint: hint}
	if payload != nil {
		data, err := abi.Marshal(payload)
		if err != nil {
			return fmt.Errorf("confirm: payload: %w", err)
		}
		request.Payload = data
	}
	_, err := c.ask("confirm", request, nil)
	return err
}

// Get reads the state value under key into a pointer and reports whether it was
// there. Keys have their scope: session:, user:, app: or temp:.
func (c *Call) Get(key string, into any) (bool, error) {
	reply, err := c.ask("state_get", abi.StateGet{Key: key}, nil)
	if err != nil {
		return false, err
	}
	return readValue("state", key, reply, into)
}

// readValue reads the reply of a host call that reads a value of what.
func readValue(what, key string, reply []byte, into any) (bool, error) {
	var v abi.StateValue
	if err := json.Unmarshal(reply, &v); err != nil {
		return false, fmt.Errorf("%s_get: reply: %w", what, err)
	}
	if !v.Found {
		return false, nil
	}
	if err := unmarshal(v.Value, into); err != nil {
		return true, fmt.Errorf("%s %s: %w", what, key, err)
	}
	return true, nil
}

// Set writes a state value. It counts unless the call is denied.
func (c *Call) Set(key string, value any) error {
	data, err := abi.Marshal(value)
	if err != nil {
		return fmt.Errorf("state %s: %w", key, err)
	}
	_, err = c.ask("state_set", abi.StateSet{Values: map[string]json.RawMessage{key: data}}, nil)
	return err
}

// A Level says how urgent a line of the operator's log is.
type Level string

// The levels.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Log writes one line to the operator's log, formatted as by [fmt.Sprintf]. A
// line that the host refuses is lost.
func (c *Call) Log(level Level, format string, args ...any) {
	_, _ = c.ask("log", abi.LogRequest{Level: string(level), Message: fmt.Sprintf(format, args...)}, nil)
}

// Random fills p with random bytes from the host. A call made by hand has none, and
// panics.
func (c *Call) Random(p []byte) { c.wall.random(p) }

// Transfer hands the conversation to another agent after this step.
func (c *Call) Transfer(agent string) error {
	_, err := c.ask("transfer", abi.TransferRequest{Agent: agent}, nil)
	return err
}

// Escalate ends the work of this agent and returns to the one above it.
func (c *Call) Escalate() error {
	_, err := c.ask("escalate", struct{}{}, nil)
	return err
}

// SkipSummary makes the result of this call the answer, without another turn of
// the model.
func (c *Call) SkipSummary() error {
	_, err := c.ask("skip_summary", struct{}{}, nil)
	return err
}

// ask makes a host call.
func (c *Call) ask(function string, request any, body []byte) ([]byte, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: request: %w", function, err)
	}
	if c.wall == nil {
		return nil, errors.New(function + ": a call made by hand has no host")
	}
	return c.wall.call(function, data, body)
}
