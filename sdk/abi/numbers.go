package abi

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Numbers returns a copy of generic JSON with Go's own numbers in place of
// [json.Number], as programs that check schemas know them: whole ones of 64 bits as they are, all
// others as the nearest float64. What is too large or too small for that becomes
// the largest or smallest one, so it is still on its side of every bound and still
// no zero.
func Numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = Numbers(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Numbers(e)
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
