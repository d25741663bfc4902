package wasmbin

import (
	"encoding/binary"
	"fmt"
)

// SetCustom returns a copy of module b in which the custom section of that name
// holds data. It takes the place of the section that was there, else it comes
// last; every other byte stays as it was. More than one section of the name, a
// result past [MaxModuleBytes] and what [Decode] refuses are errors.
func SetCustom(b []byte, name string, data []byte) ([]byte, error) {
	m, err := Decode(b)
	if err != nil {
		return nil, err
	}
	if len(name) > MaxNameBytes {
		return nil, fmt.Errorf("custom section: name of %d bytes exceeds %d", len(name), MaxNameBytes)
	}
	start, end, n := len(b), len(b), 0
	for _, s := range m.Sections {
		if s.ID == secCustom && s.Name == name {
			start, end = s.Start, s.End
			n++
		}
	}
	if n > 1 {
		return nil, fmt.Errorf("custom section %q: there are %d", name, n)
	}
	var body []byte
	body = binary.AppendUvarint(body, uint64(len(name)))
	body = append(body, name...)
	body = append(body, data...)
	out := append([]byte(nil), b[:start]...)
	out = append(out, secCustom)
	out = binary.AppendUvarint(out, uint64(len(body)))
	out = append(out, body...)
	out = append(out, b[end:]...)
	if len(out) > MaxModuleBytes {
		return nil, fmt.Errorf("module with section %q: %d bytes exceed %d", name, len(out), MaxModuleBytes)
	}
	if _, err := Decode(out); err != nil { // too many custom sections, or a broken "name"
		return nil, err
	}
	return out, nil
}

// WithoutCustom returns a copy of the module without its custom sections, the one
// named keep excepted. Every other byte stays as it was.
func (m *Module) WithoutCustom(keep string) []byte {
	out := make([]byte, 0, len(m.bytes))
	from := 0
	for _, s := range m.Sections {
		if s.ID == secCustom && s.Name != keep {
			out = append(out, m.bytes[from:s.Start]...)
			from = s.End
		}
	}
	return append(out, m.bytes[from:]...)
}
