package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What takes long is shown on one line of a terminal that rewrites itself, and is gone when it is over.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		name              string
		terminal, verbose bool
		takes             time.Duration
		want              string
	}{
		{"short", true, false, 299 * time.Millisecond, ""},
		{"long", true, false, 450 * time.Millisecond, "<compiling weather 5d0c8e77  0.3s<compiling weather 5d0c8e77  0.4s<"},
		{"long and verbose", true, true, 350 * time.Millisecond, "<compiling weather 5d0c8e77  0.3s<compiling weather 5d0c8e77  0.3s\n"},
		{"no terminal", false, false, time.Minute, ""},
		{"no terminal, verbose", false, true, 1100 * time.Millisecond, "compiling weather 5d0c8e77  1.1s\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				p := &progress{out: &out, terminal: c.terminal, verbose: c.verbose}
				end := p.begin("compiling weather 5d0c8e77")
				time.Sleep(c.takes)
				end()
				if got := strings.ReplaceAll(out.String(), clearLine, "<"); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// What is written meanwhile stands above the line, and a step within another one is shown in its place.
func TestProgressBesideOtherText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{out: &out, terminal: true}
		outer := p.begin("building a\x1b[31m")
		time.Sleep(350 * time.Millisecond)
		fmt.Fprintln(p, "a warning")
		inner := p.begin("compiling b")
		time.Sleep(300*time.Millisecond + time.Microsecond)
		inner()
		fmt.Fprint(p, "Pay? ") // a question stays as it is
		time.Sleep(time.Second)
		outer()
		want := `<building a\u001b[31m  0.3s<a warning` + "\n<compiling b  0.3s<Pay? "
		if got := strings.ReplaceAll(out.String(), clearLine, "<"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A step is told of on a line of its own: beside a question that nobody has answered yet, and after
// the answer, which the terminal shows with the end of its line.
func TestProgressBesideAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{out: &out, terminal: true, verbose: true}
		outer, inner := p.begin("building a"), p.begin("compiling b")
		fmt.Fprint(p, "Pay? ")
		time.Sleep(350 * time.Millisecond)
		inner()
		fmt.Fprint(p, "Pay? ")
		out.WriteString("yes\n") // as the terminal shows it
		p.answered()
		time.Sleep(progressEvery)
		outer()
		want := "Pay? \ncompiling b  0.3s\nPay? yes\n<building a  0.4s<building a  0.5s\n"
		if got := strings.ReplaceAll(out.String(), clearLine, "<"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
