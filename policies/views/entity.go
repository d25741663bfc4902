package views

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// named are the HTML names of ASCII characters and of two that are invisible or look
// like a blank. Package html knows all 2,231 names, and builds a table of them that
// costs each call of a guest more than the judgement.
var named = map[string]string{
	"Tab": "\t", "NewLine": "\n", "nbsp": " ", "shy": "\u00ad", "excl": "!", "quot": "\"", "QUOT": "\"", "num": "#", "dollar": "$", "percnt": "%",
	"amp": "&", "AMP": "&", "apos": "'", "lpar": "(", "rpar": ")", "ast": "*", "midast": "*", "plus": "+", "comma": ",", "period": ".", "sol": "/",
	"colon": ":", "semi": ";", "lt": "<", "LT": "<", "equals": "=", "gt": ">", "GT": ">", "quest": "?", "commat": "@", "lsqb": "[", "lbrack": "[",
	"bsol": "\\", "rsqb": "]", "rbrack": "]", "Hat": "^", "lowbar": "_", "UnderBar": "_", "grave": "`", "DiacriticalGrave": "`", "lcub": "{",
	"lbrace": "{", "verbar": "|", "vert": "|", "VerticalLine": "|", "rcub": "}", "rbrace": "}", "hyphen": "-", "dash": "-", "fjlig": "fj",
}

// loose are the names that readers know without a semicolon.
var loose = []string{"nbsp", "shy", "quot", "QUOT", "amp", "AMP", "lt", "LT", "gt", "GT"}

// entity returns what an HTML entity at the beginning of a text stands for, and its
// length; 0 if there is none.
func entity(s string) (text string, size int) {
	if strings.HasPrefix(s, "&#") {
		digits, base := s[2:], 10
		if digits != "" && (digits[0] == 'x' || digits[0] == 'X') {
			digits, base = digits[1:], 16
		}
		n := 0
		for n < len(digits) && n < 12 && isHex(digits[n]) && (base == 16 || digits[n] <= '9') {
			n++
		}
		code, err := strconv.ParseUint(digits[:n], base, 32)
		if err != nil || code > utf8.MaxRune {
			return "", 0
		}
		size = len(s) - len(digits) + n
		if size < len(s) && s[size] == ';' {
			size++
		}
		return string(rune(code)), size
	}
	n := 1
	for n < len(s) && n < 20 && alnum(s[n]) {
		n++
	}
	if text, known := named[s[1:n]]; known && n < len(s) && s[n] == ';' {
		return text, n + 1
	}
	for _, name := range loose {
		if strings.HasPrefix(s[1:], name) {
			return named[name], 1 + len(name)
		}
	}
	return "", 0
}
