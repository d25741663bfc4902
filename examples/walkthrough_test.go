package examples_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxd/sandboxd/internal/clitest"
)

// TestWalkthrough runs docs/first-ten-minutes.md, from the clone of the repository on: every
// command of a console block, with what it is to print, and every change of a diff block. The
// repository is what stands here, committed or not, and sandboxd is the one that the page has
// built and put on PATH.
func TestWalkthrough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "first-ten-minutes.md"))
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
	from := repository(t)
	p := clitest.Params(t)
	p.Files = []string{file}
	p.Cmds["shows"], p.Cmds["export"] = shows, export
	setup := p.Setup
	p.Setup = func(s *testscript.Env) error {
		s.Setenv("REPOSITORY", from)
		return setup(s)
	}
	testscript.Run(t, p)
}

// repository returns a repository of git that has all files of this one in one commit.
func repository(t *testing.T) string {
	t.Helper()
	dir, root := t.TempDir(), ".."
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, to := filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())
		switch {
		case e.Name() == ".git" || e.Name() == "bin":
			continue
		case e.IsDir():
			err = os.CopyFS(to, os.DirFS(from))
		default:
			var data []byte
			if data, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(to, data, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apps, err := filepath.Glob(filepath.Join(dir, "examples", "*", "agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		data, err := os.ReadFile(app)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(app, []byte(clitest.SlowMachine(string(data))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=test", "-c", "user.email=test@test.example", "commit", "-q", "-m", "all"}} {
		git := exec.CommandContext(t.Context(), "git", args...)
		git.Dir = dir
		git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	return dir
}

// export NAME=VALUE sets a variable as a shell does, which knows the folder as PWD.
func export(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: export NAME=VALUE")
	}
	name, value, _ := strings.Cut(args[0], "=")
	ts.Setenv(name, os.Expand(value, func(key string) string {
		if key == "PWD" {
			return ts.MkAbs(".")
		}
		return ts.Getenv(key)
	}))
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
// that was asked last may be written cnf-… in a command, and REPOSITORY is where this one is.
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
		default:
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
		if value, is := strings.CutPrefix(lines[0], "export "); is {
			fmt.Fprintln(script, "export", quote(strings.ReplaceAll(value, `"`, "")))
			continue
		}
		words, err := shellWords(lines[0])
		if err != nil {
			return err
		}
		for i, word := range words {
			switch word {
			case "cnf-…":
				words[i] = "$CNF"
			case "REPOSITORY":
				words[i] = "$REPOSITORY"
			default:
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
