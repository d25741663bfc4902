package authortest

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// contains returns where got has not what want asks for; "" if it has. Objects may
// have more members than want, lists may not have more elements. An object with one
// member that begins with "$" asks for something else than a value: {"$re":
// EXPRESSION} a text that matches, {"$near": [NUMBER, DISTANCE]} a number, {"$any":
// true} any value at all.
func contains(want, got any, at string) (where, wanted, has string) {
	miss := func() (string, string, string) { return at, text(want), text(got) }
	if at == "" {
		at = "/"
	}
	switch w := want.(type) {
	case map[string]any:
		if operator, operand, ok := only(w); ok {
			if operates(operator, operand, got) {
				return "", "", ""
			}
			return miss()
		}
		g, ok := got.(map[string]any)
		if !ok {
			return miss()
		}
		for key, value := range w {
			inner, ok := g[key]
			below := at + key
			if at != "/" {
				below = at + "/" + key
			}
			if !ok {
				return below, text(value), "nothing"
			}
			if where, wanted, has = contains(value, inner, below); where != "" {
				return where, wanted, has
			}
		}
		return "", "", ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return miss()
		}
		for i := range w {
			below := fmt.Sprintf("%s/%d", at, i)
			if at == "/" {
				below = fmt.Sprintf("/%d", i)
			}
			if where, wanted, has = contains(w[i], g[i], below); where != "" {
				return where, wanted, has
			}
		}
		return "", "", ""
	}
	if text(want) != text(got) {
		return miss()
	}
	return "", "", ""
}

// only returns the one member of an operator.
func only(m map[string]any) (operator string, operand any, ok bool) {
	for key, value := range m {
		if len(m) == 1 && (key == "$re" || key == "$near" || key == "$any") {
			return key, value, true
		}
	}
	return "", nil, false
}

func operates(operator string, operand, got any) bool {
	switch operator {
	case "$re":
		s, ok := got.(string)
		pattern, _ := operand.(string) // checked
		re, err := regexp.Compile(pattern)
		return ok && err == nil && re.MatchString(s)
	case "$near":
		pair, _ := operand.([]any)
		middle, distance, ok := near(pair)
		value, isNumber := number(got)
		return ok && isNumber && math.Abs(value-middle) <= distance
	}
	return true
}

// near returns the operands of $near.
func near(pair []any) (middle, distance float64, ok bool) {
	if len(pair) != 2 {
		return 0, 0, false
	}
	middle, first := number(pair[0])
	distance, second := number(pair[1])
	return middle, distance, first && second
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	f, err := strconv.ParseFloat(n.String(), 64)
	return f, ok && err == nil
}

// operators says what is wrong with the operators of a want.
func operators(want any) error {
	switch w := want.(type) {
	case map[string]any:
		operator, operand, ok := only(w)
		switch {
		case !ok:
		case operator == "$re":
			pattern, isText := operand.(string)
			if _, err := regexp.Compile(pattern); err != nil || !isText {
				return fmt.Errorf("$re: want a regular expression")
			}
		case operator == "$near":
			pair, _ := operand.([]any)
			if _, _, ok := near(pair); !ok {
				return fmt.Errorf("$near: want [NUMBER, DISTANCE]")
			}
		case operand != true:
			return fmt.Errorf("$any: want true")
		}
		for key, value := range w {
			if key[:min(1, len(key))] == "$" && !ok {
				return fmt.Errorf("%s: want one of $re, $near and $any, alone", key)
			}
			if err := operators(value); err != nil {
				return err
			}
		}
	case []any:
		for _, value := range w {
			if err := operators(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// text returns a value as JSON.
func text(v any) string {
	data, err := abi.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
