//go:build wasip1

package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// patience stretches what a script waits. A wait orders parallel calls, and the
// order must hold where making an instance takes longer than calling a function.
const patience = 10

// tool runs the script of a tool.
func tool(c *abi.ToolCall, do []operation) abi.ToolResult {
	result, err := toolResult(c, do)
	if err != nil {
		return abi.ToolResult{Format: abi.Version, Fail: &abi.Failure{Message: err.Error()}}
	}
	return abi.ToolResult{Format: abi.Version, Result: result}
}

func toolResult(c *abi.ToolCall, do []operation) (json.RawMessage, error) {
	for _, op := range do {
		switch op.name {
		case "sleep_ms":
			ms, err := op.value.(json.Number).Int64()
			must(err)
			time.Sleep(patience * time.Duration(ms) * time.Millisecond)
		case "ask_confirmation":
			if c.Confirmation != nil {
				continue
			}
			question := op.value.(map[string]any)
			hint, _ := question["hint"].(string)
			if err := ask("confirm", abi.ConfirmRequest{Hint: hint, Payload: raw(question["payload"])}, nil, nil); err != nil {
				return nil, err
			}
			return raw(question["pending"]), nil
		case "return":
			return raw(op.value), nil
		case "return_args":
			return raw(map[string]any{"args": c.Args}), nil
		case "return_state":
			return state(op.value.([]any))
		case "return_confirmation":
			seen := map[string]any{}
			if a := c.Confirmation; a != nil {
				seen["confirmed"], seen["payload"] = a.Confirmed, a.Payload
			}
			return raw(map[string]any{"confirmation": seen}), nil
		case "return_error":
			return nil, errors.New(op.value.(string))
		case "panic":
			panic(op.value.(string))
		case "return_nil":
			return nil, nil
		default:
			if err := effect(op); err != nil {
				return nil, err
			}
		}
	}
	return json.RawMessage("{}"), nil
}

// effect does what a script may do at any point, as far as the host lets it.
func effect(op operation) error {
	switch op.name {
	case "state_set":
		values := map[string]json.RawMessage{}
		for key, value := range op.value.(map[string]any) {
			values[scoped(key)] = raw(value)
		}
		return ask("state_set", abi.StateSet{Values: values}, nil, nil)
	case "save_artifact":
		return saveArtifact(op.value)
	case "emit":
		return ask("emit", abi.EmitRequest{Chunk: raw(op.value)}, nil, nil)
	case "skip_summarization":
		return ask("skip_summary", struct{}{}, nil, nil)
	case "escalate":
		return ask("escalate", struct{}{}, nil, nil)
	case "transfer_to":
		return ask("transfer", abi.TransferRequest{Agent: op.value.(string)}, nil, nil)
	}
	return fmt.Errorf("operation %q: not known here", op.name)
}

// state returns the values of state keys as a result.
func state(keys []any) (json.RawMessage, error) {
	values := map[string]any{}
	for _, k := range keys {
		key := k.(string)
		var v abi.StateValue
		if err := ask("state_get", abi.StateGet{Key: scoped(key)}, nil, &v); err != nil {
			return nil, err
		}
		values[key] = "<missing>"
		if v.Found {
			values[key] = v.Value
		}
	}
	return raw(map[string]any{"state": values}), nil
}

// scoped returns a state key as grants write it.
func scoped(key string) string {
	for _, scope := range []string{"app:", "user:", "temp:"} {
		if strings.HasPrefix(key, scope) {
			return key
		}
	}
	return "session:" + key
}

// saveArtifact saves a part in the JSON form of the Gemini REST API.
func saveArtifact(v any) error {
	var a struct {
		Name string `json:"name"`
		Part struct {
			Text       string `json:"text"`
			InlineData *struct {
				MIMEType string `json:"mimeType"`
				Data     string `json:"data"`
			} `json:"inlineData"`
		} `json:"part"`
	}
	must(json.Unmarshal(raw(v), &a))
	kind, body := "text/plain", []byte(a.Part.Text)
	if d := a.Part.InlineData; d != nil {
		var err error
		kind = d.MIMEType
		body, err = base64.StdEncoding.DecodeString(d.Data)
		must(err)
	}
	return ask("artifact_save", abi.ArtifactSave{Name: a.Name, Type: kind}, body, nil)
}
