package sqlite

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// encode returns v as JSON.
func encode(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// decode reads what encode wrote. Numbers in open values keep their text.
func decode(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// bytesOf is a document as a column: nil is NULL.
func bytesOf(doc json.RawMessage) any {
	if doc == nil {
		return nil
	}
	return []byte(doc)
}

// A stamp is a time as a column: RFC 3339 with its own offset.
type stamp time.Time

// Value implements [driver.Valuer].
func (s stamp) Value() (driver.Value, error) {
	text, err := time.Time(s).MarshalText()
	return string(text), err
}

// Scan implements [database/sql.Scanner].
func (s *stamp) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("time is %T, want text", v)
	}
	return (*time.Time)(s).UnmarshalText([]byte(text))
}

// names is a list of texts as a column: a JSON array, or nothing.
type names []string

// Value implements [driver.Valuer].
func (n names) Value() (driver.Value, error) {
	if len(n) == 0 {
		return "", nil
	}
	return encode([]string(n))
}

// Scan implements [database/sql.Scanner].
func (n *names) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("names are %T, want text", v)
	}
	*n = nil
	if text == "" {
		return nil
	}
	return decode(text, (*[]string)(n))
}
