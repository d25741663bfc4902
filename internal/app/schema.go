package app

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Schema returns the JSON Schema of agent.yaml, made from the same types and tags
// that [Load] reads with. docs/agent.schema.json is its published copy.
func Schema() []byte {
	s := schemaOf(reflect.TypeFor[File]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "agent.yaml, format 1"
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // made of texts and maps
	}
	return append(data, '\n')
}

func schemaOf(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[[]Agent](): // agents below agents
		return map[string]any{"type": "array", "items": map[string]any{"$ref": "#/properties/agent"}}
	case reflect.TypeFor[Text]():
		return map[string]any{"oneOf": []any{
			map[string]any{"type": "string"},
			map[string]any{"type": "object", "additionalProperties": false, "required": []any{"file"},
				"properties": map[string]any{"file": map[string]any{"type": "string"}}},
		}}
	case reflect.TypeFor[Duration]():
		return map[string]any{"type": "string", "pattern": `^[0-9.]+(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$`}
	case reflect.TypeFor[Bytes]():
		return map[string]any{"type": []any{"string", "integer"}, "pattern": `^[0-9]+([KMG]i)?B?$`, "minimum": 1}
	case reflect.TypeFor[Count]():
		return map[string]any{"type": []any{"string", "integer"}, "pattern": `^[0-9]+[kMG]?$`, "minimum": 1}
	case reflect.TypeFor[JSON]():
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Struct:
		properties := map[string]any{}
		var required []any
		for f := range t.Fields() {
			name := yamlName(f)
			if name == "" {
				continue
			}
			p := schemaOf(f.Type)
			if doc := f.Tag.Get("doc"); doc != "" {
				p["description"] = doc
			}
			if enum := f.Tag.Get("enum"); enum != "" {
				var choices []any
				for c := range strings.SplitSeq(enum, ",") {
					choices = append(choices, c)
				}
				p["enum"] = choices
			}
			if name == "format" {
				p["const"] = 1
			}
			properties[name] = p
			if f.Tag.Get("required") != "" {
				required = append(required, name)
			}
		}
		s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		if required != nil {
			s["required"] = required
		}
		return s
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Int:
		return map[string]any{"type": "integer", "minimum": 1, "maximum": 1 << 20}
	}
	return map[string]any{"type": "string"}
}
