package flow

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Validate checks a document against a schema. Whole numbers are compared
// exactly from -2^63 to 2^64-1, all others as 64-bit floating point; a number
// beyond those is an error.
func Validate(schema *jsonschema.Resolved, document json.RawMessage) error {
	v, err := abi.Unmarshal(document)
	if err != nil {
		return err
	}
	if v, err = withNumbers(v); err != nil {
		return err
	}
	return schema.Validate(v)
}

// withNumbers replaces the texts of numbers by Go numbers, which is what the
// validator takes for numbers. It changes v.
func withNumbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if v[k], err = withNumbers(e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range v {
			if v[i], err = withNumbers(e); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return u, nil
		}
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) {
			return nil, fmt.Errorf("number %s is out of range", clipNumber(v.String()))
		}
		return f, nil
	}
	return v, nil
}

func clipNumber(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
