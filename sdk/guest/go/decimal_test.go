package guest

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

func TestParseDecimal(t *testing.T) {
	for text, sign := range map[string]int{"0": 0, "-0": 0, "0.00": 0, "0e5": 0, "1": 1, "-1": -1, "1250.00": 1, "0.001": 1, "1e2": 1, "1E+2": 1, "-1e-2": -1,
		"1e1000000": 1, "1e-1000000": 1, "12345678901234567890.12345678901234567890": 1} {
		d, err := ParseDecimal(text)
		if err != nil || d.Sign() != sign || d.String() != text {
			t.Errorf("%s: got %s with sign %d, error %v", text, d, d.Sign(), err)
		}
	}
	for _, text := range []string{"", "-", "+1", "01", "00", "-01", "1.", ".5", "1e", "1e+", "e1", "1 ", " 1", "1_000", "0x1", "NaN", "Infinity", "1,5", "--1", "1e1e1", "1.2.3", "١", "1e+-1", "1e--1"} {
		if d, err := ParseDecimal(text); err == nil || !strings.Contains(err.Error(), "not a number") {
			t.Errorf("%q: got %s, error %v", text, d, err)
		}
	}
	for _, text := range []string{"1e1000001", "1e-1000001", "1e99999999999999999999"} {
		if d, err := ParseDecimal(text); err == nil || !strings.Contains(err.Error(), "exponent exceeds 1000000") {
			t.Errorf("%q: got %s, error %v", text, d, err)
		}
	}
	if _, err := ParseDecimal(strings.Repeat("x", 1000)); len(err.Error()) > 150 {
		t.Errorf("error of %d bytes repeats its input", len(err.Error()))
	}
	if d := (Decimal{}); d.Sign() != 0 || d.String() != "0" || d.Cmp(Decimal{}) != 0 {
		t.Errorf("the zero Decimal is %s", d)
	}
}

func TestDecimalJSON(t *testing.T) {
	for in, want := range map[string]string{`"1250.00"`: `"1250.00"`, `1250.00`: `"1250.00"`, `1e2`: `"1e2"`, `"\u0031"`: `"1"`} {
		var d Decimal
		if err := json.Unmarshal([]byte(in), &d); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if out, err := json.Marshal(d); err != nil || string(out) != want {
			t.Errorf("%s: got %s, error %v, want %s", in, out, err, want)
		}
	}
	for _, in := range []string{`""`, `"x"`, `null`, `true`, `{}`, `"1 "`, `[1]`} {
		d, _ := ParseDecimal("7")
		if err := json.Unmarshal([]byte(in), &d); err == nil || d.String() != "7" {
			t.Errorf("%s: got %s, error %v", in, d, err)
		}
	}
}

func TestPlainInteger(t *testing.T) {
	for in, want := range map[string]string{"3": "3", "3.0": "3", "3e0": "3", "30e-1": "3", "1.5e1": "15", "-2.00": "-2", "0.0": "0", "-0.0": "0", "0e9": "0",
		"1.5": "1.5", "1e-1": "1e-1", "1e30": "1e30", "9223372036854775807.0": "9223372036854775807", "x": "x"} {
		if got := plainInteger(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// FuzzDecimal: order and sign are those of the exact rational numbers.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1", "1.0", "10e-1", "0.1", "-5e3", "4999.999", "123456789012345678901234567890", "1e-20"} {
		f.Add(s, "1.00")
		f.Add("-0.01", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err := ParseDecimal(a)
		if err != nil {
			return
		}
		if !json.Valid([]byte(a)) {
			t.Fatalf("%q was accepted and is no JSON number", a)
		}
		y, err := ParseDecimal(b)
		if err != nil || max(len(a), len(b)) > 200 || max(abs(x.point), abs(y.point)) > 1000 {
			return
		}
		p, _ := new(big.Rat).SetString(a)
		q, _ := new(big.Rat).SetString(b)
		if x.Sign() != p.Sign() || x.Cmp(y) != p.Cmp(q) || y.Cmp(x) != q.Cmp(p) {
			t.Fatalf("%s and %s: signs %d %d, order %d and %d, want %d", a, b, x.Sign(), y.Sign(), x.Cmp(y), y.Cmp(x), p.Cmp(q))
		}
	})
}

func abs(n int) int { return max(n, -n) }
