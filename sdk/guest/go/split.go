package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// encoding/json reads all of a document once for each level that keeps a part of it
// raw. The documents of the host are canonical and known to be JSON, so this reads
// each level only as far as it must to find where its parts end.

var errSplit = errors.New("not a JSON object or list")

// splitObject returns the members of an object. It does not look whether values are
// right; those who decode them do.
func splitObject(data []byte) (members, error) {
	s := splitter{data: data}
	m := members{}
	err := s.each('{', '}', func(value []byte) error {
		if value[0] != '"' {
			return errSplit
		}
		name := string(value[1 : len(value)-1])
		if strings.Contains(name, `\`) {
			if err := json.Unmarshal(value, &name); err != nil {
				return err
			}
		}
		if s.next() != ':' {
			return errSplit
		}
		inner, err := s.value()
		m[name] = inner
		return err
	})
	return m, err
}

// splitList returns the elements of a list; none of null.
func splitList(data []byte) ([]json.RawMessage, error) {
	if string(bytes.TrimSpace(data)) == "null" {
		return nil, nil
	}
	s := splitter{data: data}
	list := []json.RawMessage{}
	err := s.each('[', ']', func(value []byte) error {
		list = append(list, value)
		return nil
	})
	return list, err
}

// join is the opposite of splitObject, for members whose names need no escapes.
func (m members) join() []byte {
	out := []byte{'{'}
	for name, value := range m {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, name...)
		out = append(out, '"', ':')
		out = append(out, value...)
	}
	return append(out, '}')
}

type splitter struct {
	data []byte
	at   int
}

// next reads one character that is no blank; 0 at the end.
func (s *splitter) next() byte {
	for s.at < len(s.data) {
		c := s.data[s.at]
		s.at++
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// each calls f with each value, or name, of what stands between two brackets.
func (s *splitter) each(open, shut byte, f func(value []byte) error) error {
	if s.next() != open {
		return errSplit
	}
	if s.next() == shut {
		return s.end()
	}
	s.at--
	for {
		v, err := s.value()
		if err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
		switch s.next() {
		case ',':
		case shut:
			return s.end()
		default:
			return errSplit
		}
	}
}

func (s *splitter) end() error {
	if s.next() != 0 {
		return errSplit
	}
	return nil
}

// value returns the next value.
func (s *splitter) value() ([]byte, error) {
	c := s.next()
	from := s.at - 1
	switch c {
	case 0, ',', ':', ']', '}':
		return nil, errSplit
	case '"':
		if err := s.text(from); err != nil {
			return nil, err
		}
	case '{', '[':
		for depth := 1; depth > 0; {
			if s.at == len(s.data) {
				return nil, errSplit
			}
			s.at++
			switch s.data[s.at-1] {
			case '"':
				if err := s.text(s.at - 1); err != nil {
					return nil, err
				}
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
		}
	default:
		for s.at < len(s.data) && bytes.IndexByte([]byte(",]} \t\r\n"), s.data[s.at]) < 0 {
			s.at++
		}
	}
	return s.data[from:s.at], nil
}

// text goes on to the end of a string whose quote is behind.
func (s *splitter) text(from int) error {
	for {
		i := bytes.IndexByte(s.data[s.at:], '"')
		if i < 0 {
			return errSplit
		}
		s.at += i + 1
		slashes := 0
		for j := s.at - 2; j > from && s.data[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return nil
		}
	}
}
