package piiredact

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// finders report what they find in a text: the value as it is compared, and where it
// stands.
var finders = map[string]func(text string, found func(value string, from, to int)){
	"email": emails, "phone": phones, "card": cards, "iban": ibans, "ip": ips,
}

var (
	email = regexp.MustCompile(`[\pL\pN._%+\-]+@[\pL\pN](?:[\pL\pN\-]*\.)+\pL{2,}`)
	phone = regexp.MustCompile(`(?:\+|\b00)[0-9](?:[ ().\-/]{0,2}[0-9]){6,14}|\(?\b[0-9]{3}\)?[ .\-][0-9]{3}[ .\-][0-9]{4}\b`)
	iban  = regexp.MustCompile(`(?i)[a-z]{2}[0-9]{2}(?:[ \-]?[a-z0-9]){11,30}`)
	ip    = regexp.MustCompile(`(?i)[0-9a-f:.]*[:.][0-9a-f:.]+`)
)

func isDigit(r rune) bool { return r >= '0' && r <= '9' || r > 0x7f && unicode.IsDigit(r) }

func emails(text string, found func(value string, from, to int)) {
	if !strings.Contains(text, "@") {
		return
	}
	near(text, func(c byte) bool { return c == '@' }, 1, 80, func(part string, at int) {
		for _, m := range email.FindAllStringIndex(part, -1) {
			found(strings.ToLower(part[m[0]:m[1]]), at+m[0], at+m[1])
		}
	})
}

func phones(text string, found func(value string, from, to int)) {
	near(text, isNumber, 8, 6, func(part string, at int) {
		for _, m := range phone.FindAllStringIndex(part, -1) {
			if apart(text, at+m[0], at+m[1]) {
				found(digits(part[m[0]:m[1]]), at+m[0], at+m[1])
			}
		}
	})
}

func isNumber(c byte) bool { return c >= '0' && c <= '9' }

// near calls f with each stretch of a text around the bytes that are something, if
// they are at least so many, and where it begins. Bytes that are no further apart than
// reach, and reach bytes before and behind them, are in one stretch. Expressions are
// tried only there: at every character they would cost a guest more than it has.
func near(text string, is func(byte) bool, least, reach int, f func(part string, at int)) {
	first, last, n := -1, -1, 0
	flush := func() {
		if n < least {
			return
		}
		from, to := max(0, first-reach), min(len(text), last+1+reach)
		for from > 0 && !utf8.RuneStart(text[from]) {
			from--
		}
		for to < len(text) && !utf8.RuneStart(text[to]) {
			to++
		}
		f(text[from:to], from)
	}
	for i := range len(text) {
		if !is(text[i]) {
			continue
		}
		if n > 0 && i-last > 2*reach {
			flush()
			n = 0
		}
		if n == 0 {
			first = i
		}
		last = i
		n++
	}
	flush()
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

// apart reports whether no letter or digit touches a stretch of a text.
func apart(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return !word(before) && !word(after)
}

func word(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// A group is digits that stand together.
type group struct{ from, to int }

// cards finds numbers of 13 to 19 digits, in groups or not, that begin as cards do
// and have a Luhn sum. Any run of whole groups may be one, so that a digit in front
// of it hides nothing.
func cards(text string, found func(value string, from, to int)) {
	var groups []group
	for i := 0; i < len(text); {
		j := i
		for j < len(text) && text[j] >= '0' && text[j] <= '9' {
			j++
		}
		if j > i {
			groups = append(groups, group{i, j})
		}
		i = max(j, i+1)
	}
	for i := 0; i < len(groups); i++ {
		for j, end := i, -1; j < len(groups); j++ {
			if j > i && !separator(text[groups[j-1].to:groups[j].from]) {
				break
			}
			number := digits(text[groups[i].from:groups[j].to])
			if len(number) > 19 {
				break
			}
			if len(number) >= 13 && number[0] >= '2' && number[0] <= '6' && apart(text, groups[i].from, groups[j].to) && luhn(number) {
				end = j
			}
			if end == j {
				found(number, groups[i].from, groups[j].to)
				i = j
				break
			}
		}
	}
}

func separator(s string) bool { return len(s) <= 3 && strings.Trim(s, " \t\r\n.-/_,") == "" }

func luhn(number string) bool {
	sum := 0
	for i := range len(number) {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

func ibans(text string, found func(value string, from, to int)) {
	near(text, isNumber, 2, 42, func(part string, at int) {
		ibansIn(part, func(value string, from, to int) {
			if apart(text, at+from, at+to) {
				found(value, at+from, at+to)
			}
		})
	})
}

func ibansIn(text string, found func(value string, from, to int)) {
	for from := 0; from < len(text); {
		m := iban.FindStringIndex(text[from:])
		if m == nil {
			return
		}
		start, end := from+m[0], from+m[1]
		from = start + 1
		// What follows may have been taken for a part of it.
		for ; end-start >= 15; end-- {
			value := strings.ToUpper(strings.NewReplacer(" ", "", "-", "").Replace(text[start:end]))
			if len(value) < 15 {
				break
			}
			if len(value) <= 34 && apart(text, start, end) && mod97(value) {
				found(value, start, end)
				from = end
				break
			}
		}
	}
}

func mod97(value string) bool {
	rest := 0
	for _, c := range value[4:] + value[:4] {
		switch {
		case c >= '0' && c <= '9':
			rest = (rest*10 + int(c-'0')) % 97
		case c >= 'A' && c <= 'Z':
			rest = (rest*100 + int(c-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

func ips(text string, found func(value string, from, to int)) {
	near(text, func(c byte) bool { return c == ':' || isNumber(c) }, 2, 12, func(part string, at int) {
		ipsIn(part, func(value string, from, to int) {
			if apart(text, at+from, at+to) {
				found(value, at+from, at+to)
			}
		})
	})
}

func ipsIn(text string, found func(value string, from, to int)) {
	for _, m := range ip.FindAllStringIndex(text, -1) {
		from, to := m[0], m[1]
		for to > from && (text[to-1] == '.' || text[to-1] == ':' && !strings.HasSuffix(text[:to], "::")) {
			to-- // the end of a sentence
		}
		addr, err := netip.ParseAddr(text[from:to])
		if err == nil && to-from > 2 && apart(text, from, to) {
			found(addr.String(), from, to)
		}
	}
}
