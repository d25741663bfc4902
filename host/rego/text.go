package rego

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func hmacEqual(args array, _ time.Time) (value, error) {
	s, err := texts(args)
	if err != nil {
		return nil, err
	}
	return hmac.Equal([]byte(s[0]), []byte(s[1])), nil
}

// hmacSHA256 takes the message and the key.
func hmacSHA256(args array, _ time.Time) (value, error) {
	s, err := texts(args)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, []byte(s[1]))
	mac.Write([]byte(s[0]))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

func sha256Hex(args array, _ time.Time) (value, error) {
	s, err := text(args[0])
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:]), nil
}

func hexDecode(args array, _ time.Time) (value, error) {
	s, err := text(args[0])
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, errUndefined
	}
	return string(b), nil
}

func hexEncode(args array, _ time.Time) (value, error) {
	s, err := text(args[0])
	if err != nil {
		return nil, err
	}
	return hex.EncodeToString([]byte(s)), nil
}

func cidrIsValid(args array, _ time.Time) (value, error) {
	s, ok := args[0].(string)
	_, _, err := net.ParseCIDR(s)
	return ok && err == nil, nil
}

func count(args array, _ time.Time) (value, error) {
	s, err := texts(args)
	if err != nil {
		return nil, err
	}
	return integer(strings.Count(s[0], s[1])), nil
}

func queryDecode(args array, _ time.Time) (value, error) {
	s, err := text(args[0])
	if err != nil {
		return nil, err
	}
	if s, err = url.QueryUnescape(s); err != nil {
		return nil, errUndefined
	}
	return s, nil
}

func queryEncode(args array, _ time.Time) (value, error) {
	s, err := text(args[0])
	if err != nil {
		return nil, err
	}
	return url.QueryEscape(s), nil
}

func sprintf(args array, _ time.Time) (value, error) {
	format, err := text(args[0])
	if err != nil {
		return nil, err
	}
	list, ok := args[1].(array)
	if !ok {
		return nil, errUndefined
	}
	operands := make([]any, len(list))
	longest, all := 64, 0
	for i, v := range list {
		operands[i] = operand(v)
		if s, ok := operands[i].(string); ok {
			longest, all = max(longest, len(s)), all+len(s)
		}
	}
	if n := mostWritten(format, longest) + all; n > MaxResultBytes {
		return nil, fmt.Errorf("the format may write %d bytes, which exceeds %d", n, MaxResultBytes)
	}
	return fmt.Sprintf(format, operands...), nil
}

// operand is what a value is for Go's verbs.
func operand(v value) any {
	switch v := v.(type) {
	case string:
		return v
	case number:
		s := string(v)
		if strings.ContainsAny(s, ".eE") {
			if f, err := strconv.ParseFloat(s, 64); err == nil {
				return f
			}
			return s
		}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(s, 10); ok {
			return n
		}
		return s
	}
	return string(appendText(nil, v))
}

// mostWritten bounds what a format writes: each verb at most its width, its precision
// and an operand, no byte of which becomes more than eight. Widths that are operands
// count as much as Go takes of them.
func mostWritten(format string, longest int) int {
	const star = 1e6
	n, verb := len(format), false
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '%':
			n += 8 * max(longest, maxDigits)
			verb = true
		case c == '*' && verb:
			n += star
		case c >= '1' && c <= '9' && verb:
			width := 0
			for ; i < len(format) && format[i] >= '0' && format[i] <= '9'; i++ {
				width = min(width*10+int(format[i]-'0'), MaxResultBytes+1)
			}
			n += width
			i--
		case strings.IndexByte("+-# 0.[]", c) < 0:
			verb = false
		}
		if n > MaxResultBytes {
			break
		}
	}
	return n
}
