// Opa is the compiler of OPA without the rest of it, for machines on which building
// all of OPA takes too long. It knows what builds and tests of policies ask of opa:
//
//	opa version
//	opa build --target wasm --entrypoint RULE --ignore PATTERN --output FILE --bundle DIR
//	opa eval --format json --input FILE --bundle DIR QUERY
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/compile"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"
	"github.com/open-policy-agent/opa/v1/version"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no command: version, build or eval")
	}
	switch command, args := args[0], args[1:]; command {
	case "version":
		fmt.Printf("Version: %s\n", version.Version)
		return nil
	case "build":
		return build(args)
	case "eval":
		return eval(args)
	default:
		return fmt.Errorf("command %q: only version, build and eval are here", command)
	}
}

// parse reads flags, and then want more arguments.
func parse(f *flag.FlagSet, args []string, want int) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != want {
		return fmt.Errorf("%s: %d arguments, want %d", f.Name(), f.NArg(), want)
	}
	return nil
}

func build(args []string) error {
	f := flag.NewFlagSet("build", flag.ContinueOnError)
	target := f.String("target", "", "what to make")
	entrypoint := f.String("entrypoint", "", "the rule to evaluate")
	ignore := f.String("ignore", "", "pattern of names of files to leave out")
	output := f.String("output", "", "the file to write")
	bundle := f.Bool("bundle", false, "read the folder as a bundle")
	if err := parse(f, args, 1); err != nil {
		return err
	}
	var out bytes.Buffer
	err := compile.New().
		WithCapabilities(ast.CapabilitiesForThisVersion()).
		WithTarget(*target).
		WithAsBundle(*bundle).
		WithOutput(&out).
		WithEntrypoints(*entrypoint).
		WithRegoAnnotationEntrypoints(true).
		WithPaths(f.Arg(0)).
		WithFilter(func(_ string, info fs.FileInfo, _ int) bool {
			match, err := filepath.Match(*ignore, info.Name())
			return err == nil && match
		}).
		Build(context.Background())
	if err != nil {
		return err
	}
	return os.WriteFile(*output, out.Bytes(), 0o644)
}

func eval(args []string) error {
	f := flag.NewFlagSet("eval", flag.ContinueOnError)
	format := f.String("format", "json", "json")
	bundle := f.String("bundle", "", "the policy's folder")
	input := f.String("input", "", "the file of the input")
	if err := parse(f, args, 1); err != nil {
		return err
	}
	if *format != "json" {
		return fmt.Errorf("eval: format %q, want json", *format)
	}
	data, err := os.ReadFile(*input)
	if err != nil {
		return err
	}
	var in any
	if err := util.Unmarshal(data, &in); err != nil { // keeps the text of numbers
		return err
	}
	result, err := rego.New(rego.Query(f.Arg(0)), rego.LoadBundle(*bundle), rego.Input(in)).Eval(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"result": result})
}
