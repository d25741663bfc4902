package flow

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// MaxErrorText is the most bytes of a tool's own error text that a model sees.
const MaxErrorText = 4096

// escape returns s with hidden characters written as \u…, cut at most bytes.
func escape(s string, most int) string {
	if !strings.ContainsFunc(s, abi.Hidden) && utf8.ValidString(s) && len(s) <= most {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if out.Len() >= most {
			out.WriteString("…")
			break
		}
		switch {
		case abi.Hidden(r) && r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		case abi.Hidden(r) || r == utf8.RuneError:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
