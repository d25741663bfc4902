//go:build wasip1

package main

import (
	"encoding/json"
	"maps"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// hook runs the script of a hook. Documents that it changed in place are in the
// answer, unless it failed.
func hook(c *abi.HookCall, do []operation) abi.HookAnswer {
	a := abi.HookAnswer{Format: abi.Version}
	if err := hookAnswer(c, do, &a); err != "" {
		return abi.HookAnswer{Format: abi.Version, Error: err}
	}
	return a
}

func hookAnswer(c *abi.HookCall, do []operation, a *abi.HookAnswer) (failed string) {
	for _, op := range do {
		switch op.name {
		case "set_arg":
			a.Args = edit(&c.Args, func(args map[string]any) { maps.Copy(args, op.value.(map[string]any)) })
		case "set_result":
			a.Result = edit(&c.Result, func(result map[string]any) { maps.Copy(result, op.value.(map[string]any)) })
		case "append_instruction":
			a.Request = edit(&c.Request, func(request map[string]any) { appendInstruction(member(request, "config"), op.value.(string)) })
		case "append_content":
			a.Request = edit(&c.Request, func(request map[string]any) {
				contents, _ := request["contents"].([]any)
				request["contents"] = append(contents, op.value)
			})
		case "set_temperature":
			a.Request = edit(&c.Request, func(request map[string]any) { member(request, "config")["temperature"] = op.value })
		case "remove_function_declarations":
			a.Request = edit(&c.Request, func(request map[string]any) {
				tools, _ := member(request, "config")["tools"].([]any)
				for _, t := range tools {
					delete(t.(map[string]any), "functionDeclarations")
				}
			})
		case "append_text":
			a.Response = edit(&c.Response, func(response map[string]any) {
				if part, text := firstText(response); part != nil {
					part["text"] = text + op.value.(string)
				}
			})
		case "if_text":
			if eventText(c.Event) != op.value.(string) {
				return ""
			}
		case "replace_event_text":
			if eventText(c.Event) == "" {
				return ""
			}
			a.Answer = edit(&c.Event, func(event map[string]any) {
				part, _ := firstText(event)
				part["text"] = op.value
			})
			return ""
		case "return", "return_content":
			a.Answer = raw(op.value)
			return ""
		case "return_response":
			a.Answer = response(op.value.(map[string]any))
			return ""
		case "return_error":
			return op.value.(string)
		default:
			if err := effect(op); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// edit changes a document that is an object and returns it.
func edit(document *json.RawMessage, change func(map[string]any)) json.RawMessage {
	v, err := abi.Unmarshal(*document)
	must(err)
	object := v.(map[string]any)
	change(object)
	*document = raw(object)
	return *document
}

// member returns the object that is a member of another, and makes it if need be.
func member(of map[string]any, name string) map[string]any {
	m, ok := of[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		of[name] = m
	}
	return m
}

// appendInstruction adds a paragraph to the system instruction.
func appendInstruction(config map[string]any, text string) {
	if config["systemInstruction"] == nil {
		config["systemInstruction"] = map[string]any{"role": "user", "parts": []any{map[string]any{"text": text}}}
		return
	}
	instruction := member(config, "systemInstruction")
	parts, _ := instruction["parts"].([]any)
	if n := len(parts); n > 0 {
		if last := parts[n-1].(map[string]any); last["text"] != nil {
			last["text"] = last["text"].(string) + "\n\n" + text
			return
		}
	}
	instruction["parts"] = append(parts, map[string]any{"text": text})
}

// firstText returns the first part with a text in the content of a response or
// event, or nil.
func firstText(of map[string]any) (part map[string]any, text string) {
	content, _ := of["content"].(map[string]any)
	parts, _ := content["parts"].([]any)
	for _, p := range parts {
		part, _ := p.(map[string]any)
		if text, _ := part["text"].(string); text != "" {
			return part, text
		}
	}
	return nil, ""
}

// eventText returns the first text of an event, or "".
func eventText(event json.RawMessage) string {
	v, err := abi.Unmarshal(event)
	must(err)
	_, text := firstText(v.(map[string]any))
	return text
}

// response turns a response as vectors write it into the one of the contract.
func response(v map[string]any) json.RawMessage {
	out := map[string]any{}
	for name, spelled := range map[string]string{"content": "content", "partial": "partial", "turn_complete": "turnComplete",
		"interrupted": "interrupted", "error_code": "errorCode", "error_message": "errorMessage"} {
		if value, ok := v[name]; ok {
			out[spelled] = value
		}
	}
	return raw(out)
}
