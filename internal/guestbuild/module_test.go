package guestbuild

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// A module is what these tests read of a WebAssembly module.
type module struct {
	imports map[string][]string // names by module
	exports []string
}

// readModule reads the import and export sections (WebAssembly core, 5.5). It
// panics on a module that ends too early, which no linker writes.
func readModule(wasm []byte) (module, error) {
	m := module{imports: map[string][]string{}}
	rest, ok := bytes.CutPrefix(wasm, []byte("\x00asm\x01\x00\x00\x00"))
	if !ok {
		return m, errors.New("no module")
	}
	for len(rest) > 0 {
		id := rest[0]
		rest = rest[1:]
		body := reader{take(&rest)}
		switch id {
		case 2:
			for range body.number() {
				from, name := string(take(&body.data)), string(take(&body.data))
				m.imports[from] = append(m.imports[from], name)
				if kind := body.byte(); kind != 0 {
					return m, fmt.Errorf("import %s %s of kind %d", from, name, kind)
				}
				body.number()
			}
		case 7:
			for range body.number() {
				m.exports = append(m.exports, string(take(&body.data)))
				body.byte()
				body.number()
			}
		}
	}
	return m, nil
}

type reader struct{ data []byte }

func (r *reader) byte() byte {
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.data)
	r.data = r.data[size:]
	return n
}

// take cuts bytes with their length before them off p.
func take(p *[]byte) []byte {
	n, size := binary.Uvarint(*p)
	out := (*p)[size : size+int(n)]
	*p = (*p)[size+int(n):]
	return out
}
