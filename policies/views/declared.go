package views

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A Declared is a tool that a request offers to a model.
type Declared struct {
	Name        string
	Description string
	Input       json.RawMessage // schema; nil: none
	Output      json.RawMessage
	Provider    bool // a tool of the model's provider, such as google_search
}

// KeepDeclared removes from a request, as [Tree] returns it, the tools for which keep
// returns false, and reports whether there were any. A tool that cannot be read is
// removed.
func KeepDeclared(request any, keep func(Declared) bool) bool {
	object, _ := request.(map[string]any)
	config, _ := object["config"].(map[string]any)
	list, there := config["tools"]
	if !there {
		return false
	}
	tools, _ := list.([]any)
	var kept []any
	removed := false
	for _, t := range tools {
		tool, _ := t.(map[string]any)
		for _, kind := range slices.Sorted(maps.Keys(tool)) {
			if kind != "functionDeclarations" {
				if !keep(Declared{Name: snake(kind), Provider: true}) {
					delete(tool, kind)
					removed = true
				}
				continue
			}
			declarations, _ := tool[kind].([]any)
			n := len(declarations)
			declarations = slices.DeleteFunc(declarations, func(d any) bool {
				declared, ok := readDeclared(d)
				return !ok || !keep(declared)
			})
			removed = removed || len(declarations) < n
			if tool[kind] = declarations; len(declarations) == 0 {
				delete(tool, kind)
			}
		}
		if len(tool) > 0 {
			kept = append(kept, tool)
		}
	}
	if config["tools"] = kept; len(kept) == 0 {
		delete(config, "tools")
	}
	return removed
}

func readDeclared(v any) (Declared, bool) {
	d, _ := v.(map[string]any)
	name, ok := d["name"].(string)
	description, _ := d["description"].(string)
	out := Declared{Name: name, Description: description}
	for into, names := range map[*json.RawMessage][]string{&out.Input: {"parametersJsonSchema", "parameters"}, &out.Output: {"responseJsonSchema", "response"}} {
		for _, n := range names {
			schema, there := d[n]
			if !there || *into != nil {
				continue
			}
			data, err := json.Marshal(schema)
			if err != nil {
				return out, false
			}
			*into = data
		}
	}
	return out, ok
}

// snake writes a name of the JSON form as tools are named: googleSearch is
// google_search.
func snake(name string) string {
	var out strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
			r += 'a' - 'A'
		}
		out.WriteRune(r)
	}
	return out.String()
}
