package flow

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// fits checks a generic value against a schema. The schema package takes a
// [json.Number] for a text, so it is shown other numbers.
func fits(s *jsonschema.Resolved, v any) error { return s.Validate(counted(v)) }

// counted returns v with Go's own numbers: whole ones of 64 bits as they are, all
// others as the nearest float64. What is too large or too small for that becomes
// the largest or smallest one, so it is still on its side of every bound and still
// no zero.
func counted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = counted(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = counted(e)
		}
		return out
	case json.Number:
		return number(v.String())
	}
	return v
}

func number(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(text, 64) // out of range is ±Inf
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	switch {
	case math.IsInf(f, 0):
		return math.Copysign(math.MaxFloat64, f)
	case f == 0 && strings.ContainsAny(mantissa, "123456789"):
		return math.Copysign(math.SmallestNonzeroFloat64, f)
	}
	return f
}
