package guest

import (
	"encoding/json"
	"reflect"
	"strconv"
)

// assign reads a value into v, which has the shape's type and is zero, with the
// defaults of what is absent. It knows the common types in their common spellings,
// and does in one pass what decode does in four. Where it knows no more it returns
// false, and decode begins again.
func (s *shape) assign(r *reader, v reflect.Value) bool {
	if !s.plain {
		return false
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		var t string
		t, err = r.str()
		v.SetString(t)
	case reflect.Bool:
		var b bool
		b, err = r.flag()
		v.SetBool(b)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		var word string
		var n int64
		if word, err = r.word(); err == nil {
			n, err = strconv.ParseInt(word, 10, v.Type().Bits())
		}
		v.SetInt(n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		err = r.list(func() error {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			if !s.each.assign(r, v.Index(v.Len()-1)) {
				return errJSON
			}
			return nil
		})
	case reflect.Struct:
		d, ok := v.Addr().Interface().(*Decimal)
		if !ok {
			return s.assignMembers(r, v) == nil
		}
		var raw []byte
		if raw, err = r.raw(); err == nil {
			err = d.UnmarshalJSON(raw)
		}
	default:
		return false
	}
	return err == nil
}

func (s *shape) assignMembers(r *reader, v reflect.Value) error {
	given := make([]bool, v.NumField())
	err := r.object(func(name string) error {
		m := s.members[name]
		if m == nil || given[m.index] || !m.assign(r, v.Field(m.index)) {
			return errJSON
		}
		given[m.index] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range s.members {
		absent := m.fallbackText
		if absent == nil && m.members != nil && m.work && !m.pointer {
			absent = json.RawMessage("{}") // it has the defaults of its own members
		}
		if !given[m.index] && absent != nil && !m.assign(newReader(absent), v.Field(m.index)) {
			return errJSON
		}
	}
	return nil
}
