package rego

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// layouts are the names that OPA has for Go's.
var layouts = map[string]string{
	"ANSIC": time.ANSIC, "UnixDate": time.UnixDate, "RubyDate": time.RubyDate, "RFC822": time.RFC822, "RFC822Z": time.RFC822Z,
	"RFC850": time.RFC850, "RFC1123": time.RFC1123, "RFC1123Z": time.RFC1123Z, "RFC3339": time.RFC3339, "RFC3339Nano": time.RFC3339Nano,
}

func layout(name string) string {
	if l, ok := layouts[name]; ok {
		return l
	}
	return name
}

// nanos is a time as a number; there is none for times before 1677 and after 2262.
func nanos(t time.Time) (value, error) {
	if t.Before(time.Unix(0, math.MinInt64)) || t.After(time.Unix(0, math.MaxInt64)) {
		return nil, errUndefined
	}
	return number(strconv.FormatInt(t.UnixNano(), 10)), nil
}

// moment reads a time: nanoseconds, or an array of them, a zone and a layout. Zones
// other than UTC are not known: what they mean depends on the machine.
func moment(v value) (t time.Time, as string, err error) {
	if list, ok := v.(array); ok {
		if len(list) == 0 {
			return t, "", errUndefined
		}
		v = list[0]
		for i, s := range list[1:] {
			name, err := text(s)
			if err != nil {
				return t, "", err
			}
			switch {
			case i == 0 && name != "" && name != "UTC":
				return t, "", fmt.Errorf("time zone %s: only UTC is known", clip(name))
			case i == 1:
				as = name
			}
		}
	}
	n, err := whole(v)
	return time.Unix(0, n).UTC(), as, err
}

// whole returns an argument that has to be an integer.
func whole(v value) (int64, error) {
	n, ok := v.(number)
	if !ok {
		return 0, errUndefined
	}
	f, _, err := big.ParseFloat(string(n), 10, 64, big.ToNearestEven)
	if err != nil {
		return 0, errUndefined
	}
	i, exact := f.Int64()
	if exact != big.Exact {
		return 0, errUndefined
	}
	return i, nil
}

func addDate(args array, _ time.Time) (value, error) {
	t, _, err := moment(args[0])
	if err != nil {
		return nil, err
	}
	var n [3]int
	for i := range n {
		v, err := whole(args[i+1])
		if err != nil {
			return nil, err
		}
		n[i] = int(v)
	}
	return nanos(t.AddDate(n[0], n[1], n[2]))
}

func clock(args array, _ time.Time) (value, error) {
	t, _, err := moment(args[0])
	if err != nil {
		return nil, err
	}
	h, m, s := t.Clock()
	return array{integer(h), integer(m), integer(s)}, nil
}

func date(args array, _ time.Time) (value, error) {
	t, _, err := moment(args[0])
	if err != nil {
		return nil, err
	}
	y, m, d := t.Date()
	return array{integer(y), integer(int(m)), integer(d)}, nil
}

func format(args array, _ time.Time) (value, error) {
	t, as, err := moment(args[0])
	if err != nil {
		return nil, err
	}
	if as == "" {
		as = time.RFC3339Nano
	}
	return t.Format(layout(as)), nil
}

func weekday(args array, _ time.Time) (value, error) {
	t, _, err := moment(args[0])
	if err != nil {
		return nil, err
	}
	return t.Weekday().String(), nil
}

func parseTime(args array, _ time.Time) (value, error) {
	s, err := texts(args)
	if err != nil {
		return nil, err
	}
	t, err := time.ParseInLocation(layout(s[0]), s[1], time.UTC)
	if err != nil {
		return nil, errUndefined
	}
	return nanos(t)
}

func parseRFC3339(args array, _ time.Time) (value, error) {
	return parseTime(array{"RFC3339", args[0]}, time.Time{})
}

// parseDuration reads what time.ParseDuration reads, and days, weeks and years of 24
// hours, 7 days and 365 days.
func parseDuration(args array, _ time.Time) (value, error) {
	s, err := text(args[0])
	if err != nil {
		return nil, err
	}
	rest := strings.TrimLeft(s, "+-")
	plain := s[:len(s)-len(rest)]
	for rest != "" {
		n := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if n <= 0 {
			return nil, errUndefined
		}
		digits := rest[:n]
		rest = rest[n:]
		unit := rest
		if n := strings.IndexAny(rest, ".0123456789"); n >= 0 {
			unit = rest[:n]
		}
		rest = rest[len(unit):]
		if hours := map[string]float64{"d": 24, "w": 7 * 24, "y": 365 * 24}[unit]; hours != 0 {
			f, err := strconv.ParseFloat(digits, 64)
			if err != nil {
				return nil, errUndefined
			}
			digits, unit = strconv.FormatFloat(f*hours, 'f', -1, 64), "h"
		}
		plain += digits + unit
	}
	d, err := time.ParseDuration(plain)
	if err != nil {
		return nil, errUndefined
	}
	return number(strconv.FormatInt(int64(d), 10)), nil
}
