package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/regobuild"
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
// error says beyond its first line is indented. Of several errors that were
// joined each is printed, and the worst exit code counts.
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
	if e, ok := errors.AsType[*capability.SyntaxError](err); ok {
		c.Code, c.Hint, c.Exit = abi.CapabilityInvalid, e.Hint, exitMisused
		return c
	}
	if e, ok := errors.AsType[*plugins.GrantError](err); ok {
		c.Code, c.Hint = abi.CapabilityDenied, "a grant cannot add; ask the author, or drop the line"
		if e.Ceiling {
			c.Hint = "raise the ceiling, or drop the line"
		}
		return c
	}
	if _, ok := errors.AsType[*fileError](err); ok {
		c.Code, c.Exit = abi.Usage, exitMisused
		return c
	}
	if errors.Is(err, context.Canceled) {
		c.Code = abi.Cancelled
	}
	return c
}

// moduleError says why the module that the user named cannot be used. Errors
// that are not about the module stay as they are.
func moduleError(name string, wasm []byte, err error) error {
	if e, ok := errors.AsType[*host.RejectError](err); ok {
		reasons := rejectReasons(wasm, e.Reasons)
		return &commandError{What: name + ": " + rejectText(reasons), Code: reasons[0].Code, Hint: rejectHint(name, reasons), Exit: exitNotDone}
	}
	if broken, ok := errors.AsType[wasmbin.Errors](err); ok {
		var reasons []host.Reason
		for _, e := range broken {
			code := abi.ModuleMalformed
			if e.Limit {
				code = abi.ModuleLimit
			}
			reasons = append(reasons, host.Reason{Code: code, Text: e.Error()})
		}
		return moduleError(name, wasm, &host.RejectError{Reasons: reasons})
	}
	if e, ok := errors.AsType[*host.GuestError](err); ok {
		return &commandError{What: name + ": describe: " + guestText(e), Code: e.Code, Exit: exitNotDone}
	}
	if e, ok := errors.AsType[*guestbuild.Error](err); ok {
		return &commandError{What: name + ": does not build\n" + e.Output, Exit: exitNotDone}
	}
	if e, ok := errors.AsType[*regobuild.Error](err); ok {
		return &commandError{What: name + ": does not build\n" + e.Output, Exit: exitNotDone}
	}
	if e, ok := errors.AsType[*regobuild.BuiltinError](err); ok {
		return &commandError{What: name + ": " + e.Error(), Code: abi.ModuleImportDenied, Exit: exitNotDone}
	}
	return err
}

// rejectReasons returns the reasons of the host. Where one only says that
// something is missing because the module is no plugin at all, it says so.
func rejectReasons(wasm []byte, reasons []host.Reason) []host.Reason {
	bin, _ := wasmbin.Decode(wasm)
	if bin == nil {
		return reasons
	}
	_, command := bin.Export(abi.ExportStart)
	_, plugin := bin.Export(abi.ExportCall)
	if !command || plugin || len(bin.Custom(abi.ManifestSection)) > 0 {
		return reasons
	}
	return append([]host.Reason{{Code: abi.ModuleABI, Text: commandModule}}, reasons...)
}

const (
	commandModule = "command module: exports _start and no tool"
	noManifest    = "no manifest"
)

// rejectText says why a module was refused: the first reason, and how many more
// there are.
func rejectText(reasons []host.Reason) string {
	if more := len(reasons) - 1; more > 0 {
		return fmt.Sprintf("%s; %d more", reasons[0].Text, more)
	}
	return reasons[0].Text
}

// rejectHint says what to do about the first reason, or where all of them are shown.
func rejectHint(name string, reasons []host.Reason) string {
	switch cure := rejectCure(name, reasons); {
	case cure != "":
		return cure
	case len(reasons) > 1:
		return fmt.Sprintf("sandboxd plugin inspect %s shows all of them", name)
	case reasons[0].Code == abi.ModuleImportDenied:
		return fmt.Sprintf("sandboxd plugin inspect %s lists what it imports", name)
	}
	return ""
}

// rejectCure says what to do about the first reason; empty if that is not known.
func rejectCure(name string, reasons []host.Reason) string {
	text := reasons[0].Text
	switch {
	case text == commandModule:
		return "Go: add -buildmode=c-shared; C: -mexec-model=reactor"
	case strings.HasPrefix(text, "component"):
		return "build for wasip1 or wasm32-unknown-unknown, not wasip2"
	case strings.HasSuffix(text, "ABI before 1.0"):
		return "rebuild with a current Extism PDK"
	case strings.HasPrefix(text, noManifest):
		return fmt.Sprintf("sandboxd plugin pack %s, with --manifest FILE if it cannot describe itself", name)
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
