package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// The exit codes.
const (
	exitDone    = 0
	exitNotDone = 1 // refused, failed, or waiting for a person
	exitMisused = 2 // unknown flag, unreadable or invalid file
)

// A commandError is how a command ends that did not do what it was asked.
type commandError struct {
	What string   // THING: what, value, bound
	Code abi.Code // printed in brackets; may be empty
	Hint string   // a command to run or a line to change; may be empty
	Exit int
}

func (e *commandError) Error() string { return e.What }

// A fileError says what is wrong with a file that the user named.
type fileError struct {
	name string // as the user named it
	err  error
}

func (e *fileError) Error() string {
	err := e.err
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the name is there already
	}
	return fmt.Sprintf("%s: %v", e.name, err)
}

func (e *fileError) Unwrap() error { return e.err }

// report prints an error, if there is one, and returns the exit code. What an
// error says beyond its first line is indented.
func (e *env) report(err error) int {
	if err == nil {
		return exitDone
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok { // the mistakes of one file
		exit := exitDone
		for _, one := range several.Unwrap() {
			exit = max(exit, e.report(one))
		}
		return exit
	}
	c := explain(err)
	what, more, _ := strings.Cut(strings.TrimSpace(c.What), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "sandboxd: %s", foreign(what, true))
	if c.Code != "" {
		fmt.Fprintf(&b, " [%s]", c.Code)
	}
	b.WriteByte('\n')
	for line := range strings.Lines(more) {
		fmt.Fprintf(&b, "  %s\n", foreign(strings.TrimRight(line, "\r\n"), true))
	}
	if c.Hint != "" {
		fmt.Fprintf(&b, "  hint: %s\n", foreign(c.Hint, true))
	}
	fmt.Fprint(e.stderr, b.String())
	return c.Exit
}

// explain says for every error of the packages below which code, hint and exit
// code it has here. An error that nobody knows is "not done", without a code.
func explain(err error) *commandError {
	if c, ok := errors.AsType[*commandError](err); ok {
		return c
	}
	c := &commandError{What: err.Error(), Exit: exitNotDone}
	if e, ok := errors.AsType[*app.Error](err); ok {
		c.Code, c.Hint = e.Code, e.Hint
		switch e.Code {
		case abi.ConfigInvalid, abi.CapabilityInvalid, abi.Usage:
			c.Exit = exitMisused
		}
		return c
	}
	if e, ok := errors.AsType[*host.RejectError](err); ok {
		c.Code, c.Hint = e.Reasons[0].Code, rejectHint(e.Reasons)
		c.What = strings.Replace(c.What, e.Error(), rejectText(e.Reasons), 1)
		return c
	}
	if e, ok := errors.AsType[*host.GuestError](err); ok {
		c.Code = e.Code
		c.What = strings.Replace(c.What, e.Error(), guestText(e), 1)
		return c
	}
	if e, ok := errors.AsType[*capability.SyntaxError](err); ok {
		c.Code, c.Hint, c.Exit = abi.CapabilityInvalid, e.Hint, exitMisused
		return c
	}
	if _, ok := errors.AsType[*plugins.GrantError](err); ok {
		c.Code, c.Hint = abi.CapabilityDenied, "a grant cannot add to what the manifest asks: ask the author, or leave the line out"
		return c
	}
	if _, ok := errors.AsType[*fileError](err); ok {
		c.Code, c.Exit = abi.Usage, exitMisused
		return c
	}
	switch {
	case errors.Is(err, audit.ErrChain):
		c.Hint = "compare the head with one that was kept elsewhere; nothing after this line can be trusted"
	case errors.Is(err, context.Canceled):
		c.Code = abi.Cancelled
	}
	return c
}

// rejectText says why a module was refused: the first reason, and how many more
// there are.
func rejectText(reasons []host.Reason) string {
	if more := len(reasons) - 1; more > 0 {
		return fmt.Sprintf("%s; %d more", reasons[0].Text, more)
	}
	return reasons[0].Text
}

// rejectHint says what to do about the first reason.
func rejectHint(reasons []host.Reason) string {
	first := reasons[0]
	switch {
	case len(reasons) > 1:
		return "sandboxd plugin inspect shows all of them"
	case strings.Contains(first.Text, "no manifest"):
		return "sandboxd plugin pack FILE, or plugin pack FILE --manifest manifest.json for a module without describe"
	case first.Code == abi.ModuleImportDenied:
		return "sandboxd plugin inspect lists what the module imports"
	}
	return ""
}

// guestText says how a call of a guest ended, for its author and operator.
func guestText(e *host.GuestError) string {
	switch {
	case e.Detail == "" || e.Detail == e.Message:
		return e.Message
	case e.Message == "":
		return e.Detail
	}
	return e.Message + ": " + e.Detail
}
