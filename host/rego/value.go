package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// A value is a value of Rego: nil, bool, number, string, array, object or set.
type value any

type (
	number string // as it was written
	array  []value
	set    []value // in the order of the text
	object []member
)

type member struct{ key, value value }

// maxDepth bounds the nesting of what parse reads.
const maxDepth = 128

// parse reads the text of a value as OPA writes it: JSON, with sets, and with keys of
// any type.
func parse(text []byte) (value, error) {
	p := &parser{rest: text}
	v, err := p.value(maxDepth)
	if err != nil {
		return nil, err
	}
	if p.space(); len(p.rest) > 0 {
		return nil, fmt.Errorf("value: %d bytes behind it", len(p.rest))
	}
	return v, nil
}

type parser struct{ rest []byte }

var errMalformed = errors.New("value: malformed")

func (p *parser) space() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\n' || p.rest[0] == '\t' || p.rest[0] == '\r') {
		p.rest = p.rest[1:]
	}
}

// take steps over a text, if it comes next.
func (p *parser) take(s string) bool {
	if p.space(); len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		return false
	}
	p.rest = p.rest[len(s):]
	return true
}

func (p *parser) value(depth int) (value, error) {
	if depth == 0 {
		return nil, fmt.Errorf("value: nested more than %d deep", maxDepth)
	}
	switch {
	case p.take("null"):
		return nil, nil
	case p.take("true"):
		return true, nil
	case p.take("false"):
		return false, nil
	case p.take("set()"):
		return set{}, nil
	case p.take("["):
		all := array{}
		err := p.list("]", func() error {
			v, err := p.value(depth - 1)
			all = append(all, v)
			return err
		})
		return all, err
	case p.take("{"):
		return p.braces(depth - 1)
	}
	if len(p.rest) > 0 && p.rest[0] == '"' {
		return p.text()
	}
	n := 0
	for n < len(p.rest) && strings.IndexByte("+-.0123456789eE", p.rest[n]) >= 0 {
		n++
	}
	if !json.Valid(p.rest[:n]) {
		return nil, errMalformed
	}
	if n > maxDigits {
		return nil, fmt.Errorf("value: number of %d digits exceeds %d", n, maxDigits)
	}
	v := number(p.rest[:n])
	p.rest = p.rest[n:]
	return v, nil
}

// list reads elements, between commas, up to the end.
func (p *parser) list(end string, element func() error) error {
	if p.take(end) {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if p.take(end) {
			return nil
		}
		if !p.take(",") {
			return errMalformed
		}
	}
}

// braces reads an object or a set, whose brace has been read.
func (p *parser) braces(depth int) (value, error) {
	members, elements := object{}, set{}
	err := p.list("}", func() error {
		k, err := p.value(depth)
		if err != nil {
			return err
		}
		if !p.take(":") {
			elements = append(elements, k)
			return nil
		}
		v, err := p.value(depth)
		members = append(members, member{k, v})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(elements) == 0:
		return members, nil
	case len(members) > 0:
		return nil, errMalformed
	}
	return elements, nil
}

func (p *parser) text() (value, error) {
	n := 1
	for n < len(p.rest) && p.rest[n] != '"' {
		if p.rest[n] == '\\' {
			n++
		}
		n++
	}
	if n >= len(p.rest) {
		return nil, errMalformed
	}
	var s string
	if err := json.Unmarshal(p.rest[:n+1], &s); err != nil {
		return nil, errMalformed
	}
	p.rest = p.rest[n+1:]
	return s, nil
}

// rank is the order of the types.
func rank(v value) int {
	switch v.(type) {
	case nil:
		return 0
	case bool:
		return 1
	case number:
		return 2
	case string:
		return 3
	case array:
		return 4
	case object:
		return 5
	}
	return 6
}

// compare orders values as Rego does.
func compare(a, b value) int {
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	switch a := a.(type) {
	case bool:
		b := b.(bool)
		switch {
		case a == b:
			return 0
		case a:
			return 1
		}
		return -1
	case number:
		return size(a).Cmp(size(b.(number)))
	case string:
		return strings.Compare(a, b.(string))
	case array:
		return slices.CompareFunc(a, b.(array), compare)
	case set:
		return slices.CompareFunc(a, b.(set), compare)
	case object:
		return slices.CompareFunc(a, b.(object), func(x, y member) int {
			if d := compare(x.key, y.key); d != 0 {
				return d
			}
			return compare(x.value, y.value)
		})
	}
	return 0
}

// size is a number for comparing; what is too large counts as 0.
func size(n number) *big.Float {
	f, _, err := big.ParseFloat(string(n), 10, 200, big.ToNearestEven)
	if err != nil {
		return new(big.Float)
	}
	return f
}

// appendText writes a value as OPA's String does.
func appendText(out []byte, v value) []byte {
	list := func(begin, end string, n int, element func(i int)) []byte {
		out = append(out, begin...)
		for i := range n {
			if i > 0 {
				out = append(out, ", "...)
			}
			element(i)
		}
		return append(out, end...)
	}
	switch v := v.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, v)
	case number:
		return append(out, v...)
	case string:
		return strconv.AppendQuote(out, v)
	case array:
		return list("[", "]", len(v), func(i int) { out = appendText(out, v[i]) })
	case set:
		if len(v) == 0 {
			return append(out, "set()"...)
		}
		v = slices.SortedFunc(slices.Values(v), compare)
		return list("{", "}", len(v), func(i int) { out = appendText(out, v[i]) })
	case object:
		v = slices.SortedFunc(slices.Values(v), func(x, y member) int { return compare(x.key, y.key) })
		return list("{", "}", len(v), func(i int) {
			out = appendText(append(appendText(out, v[i].key), ": "...), v[i].value)
		})
	}
	return out
}
