package guest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Decimal is an exact decimal number that keeps the text it was written with.
// In JSON it is read from a number or from text that reads like one, and written
// as text. The zero Decimal is 0. Compare with Cmp, not with ==.
type Decimal struct {
	text     string
	negative bool
	digits   string // significant digits, first and last not '0'; empty for zero
	point    int    // the value is 0.digits times ten to the power of point
}

// maxExponent bounds the exponent that ParseDecimal accepts.
const maxExponent = 1_000_000

// ParseDecimal reads a number in the form that JSON gives numbers: no blanks, no
// leading zeros or '+', the exponent at most a million.
func ParseDecimal(text string) (Decimal, error) {
	rest, negative := strings.CutPrefix(text, "-")
	bad := func() (Decimal, error) {
		return Decimal{}, fmt.Errorf("decimal %q: not a number as JSON writes it", clip(text))
	}
	exponent := 0
	for i := range len(rest) {
		if rest[i] != 'e' && rest[i] != 'E' {
			continue
		}
		e := rest[i+1:]
		if e != "" && (e[0] == '+' || e[0] == '-') {
			e = e[1:]
		}
		if !allDigits(e) {
			return bad()
		}
		var err error
		if exponent, err = strconv.Atoi(rest[i+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return Decimal{}, fmt.Errorf("decimal %q: exponent exceeds %d", clip(text), maxExponent)
		}
		rest = rest[:i]
		break
	}
	whole, fraction, dotted := strings.Cut(rest, ".")
	if !allDigits(whole) || dotted && !allDigits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return bad()
	}
	digits := whole
	if dotted {
		digits += fraction
	}
	for digits != "" && digits[0] == '0' {
		digits = digits[1:]
	}
	d := Decimal{text: text, digits: digits}
	for d.digits != "" && d.digits[len(d.digits)-1] == '0' {
		d.digits = d.digits[:len(d.digits)-1]
	}
	if d.digits != "" {
		d.negative = negative
		d.point = len(whole) + exponent - (len(whole) + len(fraction) - len(digits))
	}
	return d, nil
}

// String returns the text the number was written with.
func (d Decimal) String() string {
	if d.text == "" {
		return "0"
	}
	return d.text
}

// Sign returns -1, 0 or 1.
func (d Decimal) Sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// Cmp returns -1, 0 or 1 as d is less than, equal to or greater than e.
func (d Decimal) Cmp(e Decimal) int {
	if d.Sign() != e.Sign() {
		return order(d.Sign(), e.Sign())
	}
	size := order(d.point, e.point)
	if size == 0 {
		size = strings.Compare(d.digits, e.digits)
	}
	return size * d.Sign()
}

func order(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// MarshalJSON writes the number as text, so that no reader rounds it.
func (d Decimal) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a number, or text that reads like one. null is an error.
func (d *Decimal) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	v, err := ParseDecimal(text)
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// plainInteger returns the digits of an integer that was written with a fraction
// or an exponent, such as 3.0, and text itself if it is no integer or a huge one.
func plainInteger(text string) string {
	d, err := ParseDecimal(text)
	if err != nil || d.point < len(d.digits) || d.point > 20 {
		return text
	}
	if d.digits == "" {
		return "0"
	}
	plain := d.digits + strings.Repeat("0", d.point-len(d.digits))
	if d.negative {
		return "-" + plain
	}
	return plain
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// clip shortens text that stands in an error.
func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "…"
}
