package rego

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Bounds of one call.
const (
	MaxResultBytes = 1 << 20 // the result, and what a format may write at most
	maxDigits      = 1000    // a number that is computed with
)

// Builtins returns the names of the functions, sorted. The names, types and results
// are those of OPA.
func Builtins() []string { return slices.Sorted(maps.Keys(builtins)) }

// Call computes a function. args is the text of an array of its arguments as OPA
// writes values: JSON, with sets, and with keys of any type; it is not kept. now is
// the time of the question. The result is the text of a value, and empty if the
// function has none for these arguments, which Rego calls undefined.
//
// An error says that the result cannot be given although there may be one: the
// function is not known, a bound is exceeded, or the answer would depend on this
// machine. The judgement must not go on then: that something is undefined may well
// be what a policy allows.
func Call(name string, args []byte, now time.Time) ([]byte, error) {
	f, ok := builtins[name]
	if !ok {
		return nil, fmt.Errorf("%s: not a function that the host has", clip(name))
	}
	v, err := parse(args)
	if err != nil {
		return nil, fmt.Errorf("%s: arguments: %w", name, err)
	}
	list, ok := v.(array)
	if !ok || len(list) != f.arity {
		return nil, fmt.Errorf("%s: %d arguments expected", name, f.arity)
	}
	result, err := f.run(list, now)
	if errors.Is(err, errUndefined) {
		return nil, nil
	}
	if err == nil {
		var text []byte
		if text, err = encode(result); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

// errUndefined says that a function has no value for its arguments.
var errUndefined = errors.New("undefined")

type function struct {
	arity int
	run   func(args array, now time.Time) (value, error)
}

var builtins = map[string]function{
	"crypto.hmac.equal":      {2, hmacEqual},
	"crypto.hmac.sha256":     {2, hmacSHA256},
	"crypto.sha256":          {1, sha256Hex},
	"hex.decode":             {1, hexDecode},
	"hex.encode":             {1, hexEncode},
	"net.cidr_is_valid":      {1, cidrIsValid},
	"sprintf":                {2, sprintf},
	"strings.count":          {2, count},
	"time.add_date":          {4, addDate},
	"time.clock":             {1, clock},
	"time.date":              {1, date},
	"time.format":            {1, format},
	"time.now_ns":            {0, func(_ array, now time.Time) (value, error) { return nanos(now) }},
	"time.parse_duration_ns": {1, parseDuration},
	"time.parse_ns":          {2, parseTime},
	"time.parse_rfc3339_ns":  {1, parseRFC3339},
	"time.weekday":           {1, weekday},
	"urlquery.decode":        {1, queryDecode},
	"urlquery.encode":        {1, queryEncode},
}

// text returns an argument that has to be a string.
func text(v value) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", errUndefined
	}
	return s, nil
}

// texts returns arguments that all have to be strings.
func texts(args array) ([]string, error) {
	out := make([]string, len(args))
	for i, v := range args {
		var err error
		if out[i], err = text(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// integer makes a number of an int.
func integer(n int) number { return number(strconv.Itoa(n)) }

// encode writes a result: what the functions return is a string, a bool, a number or
// an array of numbers.
func encode(v value) ([]byte, error) {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(nil, v), nil
	case number:
		return []byte(v), nil
	case array:
		return appendText(nil, v), nil
	}
	s := v.(string)
	if !utf8.ValidString(s) {
		return nil, errors.New("the result is not UTF-8")
	}
	if len(s) > MaxResultBytes {
		return nil, fmt.Errorf("result of %d bytes exceeds %d", len(s), MaxResultBytes)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// clip shortens a name for an error.
func clip(s string) string { return strconv.Quote(s[:min(len(s), 80)]) }
