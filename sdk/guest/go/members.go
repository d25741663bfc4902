package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// members are the members of a JSON object as they arrived. The types of
// content.go know some of them as fields and keep the others, so that changing a
// field never loses what a newer host or model has put beside it.
type members []member

type member struct {
	name  string
	value json.RawMessage
}

// A field is a member that a type knows.
type field struct {
	name  string
	value any // a pointer
}

// A record is a type of content.go.
type record interface {
	fields() []field
	arrives(m members)
}

// unmarshalRecord makes v what data says, of which nothing is kept.
func unmarshalRecord(data []byte, v record) error {
	return read(newReader(bytes.Clone(data)), v)
}

// read decodes an object into a record, which keeps parts of the reader's data. As
// with encoding/json, null changes nothing.
func read(r *reader, v record) error {
	if r.null() {
		v.arrives(nil)
		return nil
	}
	m := make(members, 0, 2)
	fields := v.fields()
	err := r.object(func(name string) error {
		start := r.i
		err := readMember(r, name, fields)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m = append(m, member{name, json.RawMessage(r.data[start:r.i:r.i])})
		return nil
	})
	v.arrives(m)
	return err
}

// readMember reads a value into the field of that name, if there is one.
func readMember(r *reader, name string, fields []field) (err error) {
	for i := range fields {
		if fields[i].name == name {
			return readField(r, fields[i].value)
		}
	}
	_, err = r.raw()
	return err
}

// readField reads a value into what a pointer points to.
func readField(r *reader, into any) (err error) {
	if d, ok := into.(*Document); ok {
		d.raw, err = r.raw()
		return err
	}
	if r.null() {
		return nil
	}
	switch p := into.(type) {
	case *string:
		*p, err = r.str()
	case *bool:
		*p, err = r.flag()
	case *[]Part:
		*p, err = readList[Part](r)
	case *[]Content:
		*p, err = readList[Content](r)
	case **FunctionCall:
		*p = &FunctionCall{}
		err = read(r, *p)
	case **FunctionResponse:
		*p = &FunctionResponse{}
		err = read(r, *p)
	case *Content:
		err = read(r, p)
	default:
		panic(fmt.Sprintf("guest: no reader for %T", into))
	}
	return err
}

func readList[T any, P interface {
	*T
	record
}](r *reader) ([]T, error) {
	list := []T{}
	err := r.list(func() error {
		var zero T
		list = append(list, zero)
		return read(r, P(&list[len(list)-1]))
	})
	return list, err
}

// write encodes the object: the members that arrived, with those that the fields
// know as they are now. A zero field is left out, unless it arrived as zero.
func write(arrived members, fields []field) ([]byte, error) {
	m := map[string]json.RawMessage{}
	for _, a := range arrived {
		m[a.name] = a.value
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
