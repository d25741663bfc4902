package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/internal/regobuild"
)

// A check is one thing that doctor looked at.
type check struct {
	State string `json:"state"` // ok; slow: it works, and less well than it could; none: not there, and only needed for some things; FAIL
	About string `json:"about"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
}

func doctorCommand(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "doctor [APP]", Short: "Look whether this machine, and an app, have what they need",
		Long: "Look at this program, its engine, its cache, the compilers of guests and, if one is named,\nan app; and say of what is not as it should be how to mend it. Nothing is mended and\n" +
			"nothing is run. Exit 1 only if something would keep an app from running.",
		Example: "sandboxd doctor\nsandboxd doctor examples/weather --json",
		Args:    exactly("[APP]"),
		RunE: func(c *cobra.Command, args []string) error {
			checks := []check{programCheck()}
			checks = append(checks, e.engineChecks(c.Context())...)
			checks = append(checks, e.cacheCheck())
			checks = append(checks, languageChecks(e.dir)...)
			if len(args) > 0 {
				checks = append(checks, e.appCheck(c.Context(), args[0]))
			}
			return e.printChecks(checks, asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// printChecks prints what was found, and fails if something is broken.
func (e *env) printChecks(checks []check, asJSON bool) error {
	broken := 0
	for _, c := range checks {
		if c.State == "FAIL" {
			broken++
		}
	}
	if asJSON {
		if err := json.NewEncoder(e.stdout).Encode(map[string]any{"format": 1, "checks": checks}); err != nil {
			return err
		}
	} else {
		for _, c := range checks {
			state, fix := fmt.Sprintf("%-4s", c.State), ""
			if c.State == "FAIL" {
				state = e.palette(e.stdout).red(state)
			}
			if !e.stdout.terminal {
				fmt.Fprintf(e.stdout, "%s\t%s\t%s\t%s\n", c.State, c.About, foreign(c.Found, true), foreign(c.Fix, true))
				continue
			}
			if c.Fix != "" {
				fix = "    fix: " + foreign(c.Fix, false)
			}
			fmt.Fprintf(e.stdout, "%s  %-15s %s%s\n", state, c.About, foreign(c.Found, false), fix)
		}
	}
	if broken > 0 {
		return &commandError{What: fmt.Sprintf("doctor: %s", plural(broken, "thing")+" broken"), Exit: exitNotDone}
	}
	return nil
}

func programCheck() check {
	v := readVersion()
	return check{State: "ok", About: "program", Found: strings.Join([]string{v.Version, v.Go, v.Platform, "wazero " + v.Engine}, "  ")}
}

// engineChecks open an engine. What it warns of it can do without.
func (e *env) engineChecks(ctx context.Context) []check {
	code, err := e.cacheDir("code")
	if err != nil {
		return []check{{"FAIL", "engine", err.Error(), "set HOME or XDG_CACHE_HOME"}}
	}
	var said bytes.Buffer
	began := time.Now()
	engine, err := host.Open(ctx, host.Config{Cache: code, Logger: slog.New(slog.NewJSONHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return []check{{"FAIL", "engine", err.Error(), "look at the folder of the cache, " + code}}
	}
	defer engine.Close()
	checks := []check{{State: "ok", About: "engine", Found: "opened in " + took(time.Since(began))}}
	for line := range strings.Lines(said.String()) {
		var warning struct{ Msg, Reason string }
		if json.Unmarshal([]byte(line), &warning) == nil {
			checks = append(checks, check{State: "slow", About: "engine", Found: warning.Msg, Fix: warning.Reason})
		}
	}
	return checks
}

// cacheCheck looks at what can be made again.
func (e *env) cacheCheck() check {
	dir, err := e.cacheDir("")
	if err != nil {
		return check{"FAIL", "cache", err.Error(), "set HOME or XDG_CACHE_HOME"}
	}
	var files int
	var bytes int64
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			files++
			bytes += info.Size()
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return check{"FAIL", "cache", err.Error(), "make " + dir + " readable, or remove it: all of it can be made again"}
	}
	return check{State: "ok", About: "cache", Found: fmt.Sprintf("%s, %s, %s", dir, plural(files, "file"), size(bytes))}
}

// languageChecks look for the compilers of guests. None is needed to run modules.
func languageChecks(dir string) []check {
	var checks []check
	for _, name := range []string{"go", "c", "rust", "assemblyscript"} {
		l := guestlang.Named(name)
		missing, _ := errors.AsType[*guestlang.MissingError](l.Missing(dir))
		c := check{State: "ok", About: l.Title, Found: "guests can be built"}
		if _, err := exec.LookPath("go"); name == "go" && err != nil {
			missing = &guestlang.MissingError{Tool: "go, which is not on PATH", Install: "https://go.dev/dl"}
		}
		if missing != nil {
			c = check{State: "none", About: l.Title, Found: "needs " + missing.Tool + "; only to build guests in it", Fix: missing.Install}
		}
		checks = append(checks, c)
	}
	rego := check{State: "ok", About: "Rego", Found: "policies can be built with opa"}
	if _, err := exec.LookPath("opa"); err != nil {
		rego = check{State: "slow", About: "Rego", Found: "no opa on PATH: the first policy waits until Go has fetched and built it", Fix: "put opa " + regobuild.OPA + " on PATH"}
		if checks[0].State != "ok" {
			rego.State, rego.Found = "none", "needs opa; only to build policies in it"
		}
	}
	return append(checks, rego)
}

// appCheck opens an app as run does, without reaching a server or running anything.
func (e *env) appCheck(ctx context.Context, name string) check {
	c := check{State: "FAIL", About: "app"}
	fail := func(err error) check {
		if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) > 0 { // the mistakes of one file
			err = several.Unwrap()[0]
		}
		c.Found, c.Fix = err.Error(), "sandboxd config check "+name
		if known, ok := errors.AsType[*app.Error](err); ok && known.Hint != "" {
			c.Fix = known.Hint
		}
		return c
	}
	file, err := app.Load(e.path(name))
	if err != nil {
		return fail(err)
	}
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return fail(err)
	}
	defer engine.Close()
	rt, err := app.Open(ctx, file, app.Options{Modules: modules, Getenv: e.getenv})
	if err != nil {
		return fail(err)
	}
	defer rt.Close()
	pinned := 0
	for _, p := range file.Plugins {
		if p.Digest != "" {
			pinned++
		}
	}
	c.State = "ok"
	c.Found = fmt.Sprintf("%s: %s, %d pinned, %s, %s", name, plural(len(rt.Plugins), "plugin"), pinned, plural(len(rt.Guards), "guard"), plural(len(file.Secrets), "secret"))
	return c
}
