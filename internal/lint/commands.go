package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Help answers as sandboxd does when it is asked for help about a command: ok
// is false if there is no such command.
type Help func(command ...string) (text string, ok bool)

var goCommands = []string{"build", "run", "test", "vet", "install", "doc"}

// Commands finds lines in the sh blocks of documents that cannot be run as they
// stand: go commands on packages that are not there, and calls of sandboxd with
// a subcommand or flag that it does not have. Other commands are not looked at.
func Commands(t *Tree, help Help) []Finding {
	var found []Finding
	for _, name := range t.documents() {
		for _, b := range blocks(name, t.Files[name]) {
			if b.kind != "sh" {
				continue
			}
			for i, line := range b.lines {
				if why := t.badCommand(line, help); why != "" {
					found = append(found, Finding{name, b.line + i, fmt.Sprintf("%s: %s", strings.TrimSpace(line), why)})
				}
			}
		}
	}
	return inOrder(found)
}

// badCommand says why a line cannot be run.
func (t *Tree) badCommand(line string, help Help) string {
	var words []string
	for _, w := range append(split(line), ";") {
		if !slices.Contains([]string{"|", ">", "&&", ";"}, w) {
			words = append(words, w)
			continue
		}
		if why := t.badWords(words, help); why != "" {
			return why
		}
		words = nil
	}
	return ""
}

func (t *Tree) badWords(words []string, help Help) string {
	switch {
	case len(words) == 0:
		return ""
	case words[0] == "sandboxd":
		return badCall(words[1:], help)
	case words[0] != "go":
		return ""
	case len(words) == 1 || !slices.Contains(goCommands, words[1]):
		return "no such go command"
	}
	for i, w := range words[2:] {
		dir, local := strings.CutPrefix(w, "./")
		if !local {
			continue
		}
		if !t.exists(strings.TrimSuffix(strings.TrimSuffix(dir, "..."), "/")) && dir != "..." {
			return "no such package"
		}
		if dir == "cmd/sandboxd" && words[1] == "run" {
			return badCall(words[2+i+1:], help)
		}
		return ""
	}
	return ""
}

var (
	plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flag      = regexp.MustCompile(`^--?[a-z][a-z0-9-]*`)
)

// badCall says why sandboxd cannot be called with these words.
func badCall(words []string, help Help) string {
	if len(words) == 0 {
		return ""
	}
	var command []string
	for _, w := range words {
		if !plainWord.MatchString(w) {
			break
		}
		if _, ok := help(append(slices.Clone(command), w)...); !ok {
			break
		}
		command = append(command, w)
	}
	if len(command) == 0 {
		return fmt.Sprintf("no command %q", words[0])
	}
	text, _ := help(command...)
	if len(words) > len(command) && plainWord.MatchString(words[len(command)]) && strings.Contains(text, "Commands:\n") {
		return fmt.Sprintf("no command %q", strings.Join(words[:len(command)+1], " "))
	}
	for _, w := range words[len(command):] {
		if w == "--" {
			break
		}
		if f := flag.FindString(w); f != "" && !regexp.MustCompile(`(^|[\s,])`+f+`([\s=,\[]|$)`).MatchString(text) {
			return fmt.Sprintf("sandboxd %s has no flag %s", strings.Join(command, " "), f)
		}
	}
	return ""
}

// split returns the words of a line of shell, as far as documents use it: quotes
// hold words together, # begins a comment.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quote, in := rune(0), false
	for _, r := range strings.TrimPrefix(line, "$ ") {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\t':
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			in = false
		case r == '#' && !in:
			return words
		case r == ';':
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			words, in = append(words, ";"), false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if in {
		words = append(words, word.String())
	}
	return words
}
