package guest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
)

// members are the members of a JSON object as they arrived. The types of
// content.go know some of them as fields and keep the others, so that changing a
// field never loses what a newer host or model has put beside it.
type members map[string]json.RawMessage

// A field is a member that a type knows.
type field struct {
	name  string
	value any // a pointer
}

// read decodes an object into the fields and returns all its members.
func read(data []byte, fields []field) (members, error) {
	if string(data) == "null" {
		return nil, nil
	}
	m, err := splitObject(data)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		raw, ok := m[f.name]
		if !ok {
			continue
		}
		if err := readField(raw, f.value); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return m, nil
}

// readField decodes a value into a pointer.
func readField(raw json.RawMessage, into any) error {
	switch v := into.(type) {
	case *[]Content:
		return readList(raw, v)
	case *[]Part:
		return readList(raw, v)
	case json.Unmarshaler:
		return v.UnmarshalJSON(raw)
	}
	return json.Unmarshal(raw, into)
}

// readList decodes a list whose elements decode themselves.
func readList[T any, P interface {
	*T
	json.Unmarshaler
}](raw json.RawMessage, into *[]T) error {
	list, err := splitList(raw)
	if err != nil || list == nil {
		*into = nil
		return err
	}
	*into = make([]T, len(list))
	for i, e := range list {
		if err := P(&(*into)[i]).UnmarshalJSON(e); err != nil {
			return err
		}
	}
	return nil
}

// write encodes the object: the members that arrived, with those that the fields
// know as they are now. A zero field is left out, unless it arrived as zero.
func write(arrived members, fields []field) ([]byte, error) {
	m := maps.Clone(arrived)
	if m == nil {
		m = members{}
	}
	for _, f := range fields {
		if !reflect.ValueOf(f.value).Elem().IsZero() {
			raw, err := json.Marshal(f.value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			m[f.name] = raw
			continue
		}
		switch string(m[f.name]) {
		case `null`, `""`, `false`:
		default:
			delete(m, f.name)
		}
	}
	return json.Marshal(m)
}
