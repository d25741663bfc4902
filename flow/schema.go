package flow

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Validate checks a document against a schema. Whole numbers of 64 bits are
// compared exactly, all others as 64-bit floating point; one that is beyond those
// is the largest or smallest there is. The schema package takes a [json.Number]
// for a text, so it is shown other numbers.
func Validate(schema *jsonschema.Resolved, document json.RawMessage) error {
	v, err := abi.Unmarshal(document)
	if err != nil {
		return err
	}
	return schema.Validate(abi.Numbers(v))
}

// ownSchema returns a copy of a schema, of whatever type it is, that shares nothing
// with it. It has no cycles: it was encoded before, or will be.
func ownSchema(v any) any {
	if v == nil {
		return nil
	}
	return deepCopy(reflect.ValueOf(v)).Interface()
}

func deepCopy(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(deepCopy(v.Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(deepCopy(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(deepCopy(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for name, member := range v.Seq2() {
				out.SetMapIndex(name, deepCopy(member))
			}
		}
	}
	return out
}
