package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func pluginNewCommand(e *env) *cobra.Command {
	return newCommand(e, false, &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a plugin that works",
		Long: "Make the folder NAME with the source of a plugin, tests that pass, and a copy of the SDK.\nWhat can be built without a network is. " +
			"A folder that is not empty is refused.",
		Example: "sandboxd plugin new --lang go weather\nsandboxd plugin new --sdk-only weather",
	})
}

// newCommand completes the command that makes a new plugin, or policy.
func newCommand(e *env, policy bool, c *cobra.Command) *cobra.Command {
	var lang string
	var sdkOnly bool
	c.Args = exactly("NAME")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if sdkOnly {
			return e.refreshSDK(args[0])
		}
		l, what := guestlang.Named(lang), "plugins"
		if policy {
			what = "policies"
		}
		switch strings.ToLower(lang) {
		case "js", "javascript":
			return misuse("sandboxd "+map[bool]string{false: "plugin", true: "policy"}[policy]+" new --lang assemblyscript "+args[0],
				"--lang %s: JavaScript is not among the languages: nothing here runs it within the limits of a guest; AssemblyScript is near it", lang)
		}
		if l == nil || !policy && !l.Plugins {
			hint := "LANGUAGE is " + guestlang.Names(policy)
			if l != nil {
				hint = "policies can: sandboxd policy new --lang " + lang + " " + args[0]
			} else if near := app.Nearest(lang, guestlang.Known(policy)); near != "" {
				hint = "did you mean --lang=" + near + "?"
			}
			return misuse(hint, "--lang %q: not a language that %s can be made in", lang, what)
		}
		return e.newGuest(args[0], l, policy)
	}
	c.Flags().StringVar(&lang, "lang", "go", "`LANGUAGE` of the source: "+guestlang.Names(policy))
	c.Flags().BoolVar(&sdkOnly, "sdk-only", false, "replace the copy of the SDK in the folder NAME, and nothing else")
	return c
}

// newGuest makes a folder with a plugin or a policy.
func (e *env) newGuest(dir string, l *guestlang.Language, policy bool) error {
	path := e.path(dir)
	name := filepath.Base(path)
	if err := abi.ValidName(name); err != nil {
		return misuse("", "%s: %v", dir, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fileError{dir, err}
	}
	if len(entries) > 0 {
		return misuse("name a folder that does not exist yet", "%s: folder is not empty: it has %s", dir, entries[0].Name())
	}
	if err := l.New(path, name, policy); err != nil {
		return &fileError{dir, err}
	}
	offline := ""
	if l.Offline() {
		offline = ", builds offline"
	}
	fmt.Fprintf(e.stdout, "%s: created for %s (SDK for ABI %d copied to %s%s)\n\n  cd %s\n", name, l.Title, abi.Version, filepath.Join(dir, l.SDK), offline, dir)
	if l.First != "" {
		fmt.Fprintf(e.stdout, "  %s\n", l.First)
	}
	if policy {
		fmt.Fprint(e.stdout, "  sandboxd policy test     one row waits for a rule of yours\n  sandboxd policy build\n")
	} else {
		fmt.Fprint(e.stdout, "  sandboxd plugin test\n"+
			"  sandboxd plugin run get_weather --args '{\"place\":\"Oslo\"}' --grant 'http GET api.weather.example/v1/*' --replay tests/http/oslo.json\n")
	}
	return nil
}

// refreshSDK replaces the copy of the SDK of the guest in dir.
func (e *env) refreshSDK(dir string) error {
	source, _ := guestlang.Find(e.path(dir))
	if source.Language == nil {
		return misuse("name the folder of a plugin or policy that sandboxd made", "%s: no source of a guest", dir)
	}
	name, err := source.Refresh()
	switch name = filepath.Join(dir, name); {
	case errors.Is(err, fs.ErrNotExist):
		return misuse("name the folder of a plugin or policy that sandboxd made", "%s: no copy of the SDK", name)
	case err != nil:
		return &fileError{name, err}
	}
	fmt.Fprintf(e.stdout, "%s: SDK for ABI %d\n", name, abi.Version)
	return nil
}
