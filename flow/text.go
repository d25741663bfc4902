package flow

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// cutMark ends a text that was cut.
const cutMark = "…"

// MaxErrorText is the most bytes of a tool's own error text that a model sees.
const MaxErrorText = 4096

// escape returns s with hidden characters written as \u…, of at most so many bytes.
func escape(s string, most int) string {
	if !strings.ContainsFunc(s, abi.Hidden) && utf8.ValidString(s) && len(s) <= most {
		return s
	}
	var out []byte
	fits := 0 // bytes of out that leave room for the mark of a cut
	for _, r := range s {
		switch {
		case abi.Hidden(r) && r > 0xffff:
			out = fmt.Appendf(out, `\U%08x`, r)
		case abi.Hidden(r) || r == utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = utf8.AppendRune(out, r)
		}
		if len(out) > most {
			return string(out[:fits]) + cutMark
		}
		if len(out) <= most-len(cutMark) {
			fits = len(out)
		}
	}
	return string(out)
}
