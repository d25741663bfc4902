package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestWalkthrough runs what docs/first-ten-minutes.md says, in an empty folder that
// has the examples: every command of a console block, with what it is to print, and
// every change of a diff block.
func TestWalkthrough(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "first-ten-minutes.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, err := walkthrough(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(script, "exec sandboxd "); n < 25 {
		t.Fatalf("the page has %d commands, want at least 25: is it read?", n)
	}
	file := filepath.Join(t.TempDir(), "first-ten-minutes.txtar")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := scripts(t)
	p.Dir, p.Files = "", []string{file}
	p.Cmds["shows"] = shows
	setup := p.Setup
	p.Setup = func(s *testscript.Env) error {
		for _, name := range []string{"weather", "invoices", "hostile"} {
			if err := copyExample(name, filepath.Join(s.WorkDir, "examples")); err != nil {
				return err
			}
		}
		return setup(s)
	}
	testscript.Run(t, p)
}

// shows PATTERN finds a line in what the last command printed, to whichever stream.
func shows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: shows PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	if printed := ts.ReadFile("stdout") + ts.ReadFile("stderr"); !pattern.MatchString(printed) {
		ts.Fatalf("no line is like %s in\n%s", args[0], printed)
	}
}

// walkthrough makes a script of the console and diff blocks of a page. In a console
// block a line after "$ " is a command, "exit 1" says that it fails, and every other
// line is one that it prints, in which … stands for anything. The id of the question
// that was asked last may be written cnf-… in a command.
func walkthrough(page string) (string, error) {
	var script strings.Builder
	for i, block := range strings.Split("\n"+page, "\n```") {
		kind, text, _ := strings.Cut(block, "\n")
		var err error
		switch {
		case i%2 == 0: // between blocks
		case kind == "console":
			err = console(&script, text)
		case kind == "diff":
			err = diffs(&script, text)
		case kind != "sh":
			err = fmt.Errorf("a block of kind %q", kind)
		}
		if err != nil {
			return "", err
		}
	}
	return script.String(), nil
}

func console(script *strings.Builder, text string) error {
	for _, command := range strings.Split("\n"+text, "\n$ ")[1:] {
		lines := strings.Split(strings.TrimSuffix(command, "\n"), "\n")
		words, err := shellWords(lines[0])
		if err != nil {
			return err
		}
		for i, word := range words {
			if words[i] = "$CNF"; word != "cnf-…" {
				words[i] = quote(word)
			}
		}
		prints := lines[1:]
		if n := len(prints); n > 0 && prints[n-1] == "exit 1" {
			prints = prints[:n-1]
			script.WriteString("! ")
		}
		if words[0] != quote("cd") {
			script.WriteString("exec ")
		}
		fmt.Fprintln(script, strings.Replace(strings.Join(words, " "), quote("sandboxd"), "sandboxd", 1))
		for _, line := range prints {
			if line == "…" || line == "" {
				continue
			}
			pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$"
			fmt.Fprintf(script, "shows %s\n", quote(pattern))
			if strings.HasPrefix(line, "sandboxd: run waits for a person: cnf-…") {
				fmt.Fprintln(script, `keep CNF stderr 'waits for a person: (cnf-[0-9a-f-]+)'`)
			}
		}
	}
	return nil
}

// diffs makes an edit of every hunk of a diff. What stands in a hunk before and after
// must be in the file once.
func diffs(script *strings.Builder, text string) error {
	head, hunks, found := strings.Cut(text, "\n@@\n")
	from, file, ok := strings.Cut(head, "\n+++ ")
	if !found || !ok || from != "--- "+file {
		return fmt.Errorf("diff: want --- FILE, +++ FILE and @@, not %q", head)
	}
	for _, hunk := range strings.Split(strings.TrimSuffix(hunks, "\n"), "\n@@\n") {
		var before, after strings.Builder
		for line := range strings.SplitSeq(hunk, "\n") {
			switch {
			case strings.HasPrefix(line, " "):
				before.WriteString(line[1:] + `\n`)
				after.WriteString(line[1:] + `\n`)
			case strings.HasPrefix(line, "-"):
				before.WriteString(line[1:] + `\n`)
			case strings.HasPrefix(line, "+"):
				after.WriteString(line[1:] + `\n`)
			default:
				return fmt.Errorf("diff of %s: line %q", file, line)
			}
		}
		fmt.Fprintf(script, "edit %s %s %s\n", file, quote(before.String()), quote(after.String()))
	}
	return nil
}

// shellWords splits a command into words as a shell does that has quotes and nothing
// else.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quoted rune
	in := false
	for _, r := range line {
		switch {
		case quoted == 0 && r == ' ':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
			continue
		case quoted == 0 && (r == '"' || r == '\''):
			quoted = r
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted == 0 && strings.ContainsRune(`|&;<>$\`, r), quoted == '"' && strings.ContainsRune("$\\`", r):
			return nil, fmt.Errorf("command %q: has %q", line, r)
		default:
			word.WriteRune(r)
		}
		in = true
	}
	if quoted != 0 {
		return nil, fmt.Errorf("command %q: a quote is open", line)
	}
	if in {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("an empty command")
	}
	return words, nil
}

// quote writes a word of a script.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", "''") + "'" }
