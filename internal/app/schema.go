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
		return textOr("file")
	case reflect.TypeFor[Value]():
		return textOr("env", "file")
	case reflect.TypeFor[Number]():
		return map[string]any{"type": "number"}
	case reflect.TypeFor[Duration]():
		return map[string]any{"type": "string", "pattern": `^[0-9.]+(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$`}
	case reflect.TypeFor[Bytes]():
		return map[string]any{"type": []any{"string", "integer"}, "pattern": `^[0-9]+([KMG]i)?B?$`, "minimum": 1}
	case reflect.TypeFor[Count]():
		return map[string]any{"type": []any{"string", "integer"}, "pattern": `^[0-9]+[kMG]?$`, "minimum": 1}
	case reflect.TypeFor[[]Decider]():
		return map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string", "pattern": `^(role|user):.`}}
	case reflect.TypeFor[DataSchema]():
		return map[string]any{"type": []any{"object", "string", "boolean", "null"}, "minLength": 1}
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
			p := map[string]any{"$ref": "#/properties/agent"} // an agent inside an agent
			if f.Type != reflect.TypeFor[Agent]() || t == reflect.TypeFor[File]() {
				p = schemaOf(f.Type)
			}
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
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer", "minimum": 1, "maximum": 1 << 20}
	}
	return map[string]any{"type": "string"}
}

// textOr is a text, or an object with one of the keys.
func textOr(keys ...string) map[string]any {
	choices := []any{map[string]any{"type": "string"}}
	for _, key := range keys {
		choices = append(choices, map[string]any{"type": "object", "additionalProperties": false, "required": []any{key},
			"properties": map[string]any{key: map[string]any{"type": "string"}}})
	}
	return map[string]any{"oneOf": choices}
}
