package clitest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/internal/regobuild"
)

// Scripts build policies in Rego without OPA, which takes minutes to build: of
// every policy that they build, testdata/opa holds what OPA made of it. Where the
// pinned OPA is on PATH it compiles all the same, and must make what is there.
var update = flag.Bool("update", false, "write what OPA makes of the policies of tests to testdata/opa")

// Variables of scripts.
const (
	recordings = "OPA_RECORDINGS" // the folder
	realOPA    = "OPA_REAL"       // OPA, if it is here
	recordOPA  = "OPA_RECORD"     // not empty: write what it makes
)

// findOPA returns where the pinned OPA is, "" if it is not on PATH.
func findOPA() string {
	path, err := exec.LookPath("opa")
	if err != nil {
		return ""
	}
	out, err := exec.Command(path, "version").Output()
	if line, _, _ := strings.Cut(string(out), "\n"); err != nil || "v"+strings.TrimPrefix(line, "Version: ") != regobuild.OPA {
		return ""
	}
	return path
}

// opa is OPA in scripts: the command version, and a build of the folder that it runs in.
func opa() {
	if err := runOPA(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "opa: %v\n", err)
		os.Exit(1)
	}
}

func runOPA(args []string) error {
	if binary := os.Getenv(realOPA); binary != "" {
		c := exec.Command(binary, args...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			return err
		}
	} else if args[0] == "version" {
		fmt.Println("Version: " + strings.TrimPrefix(regobuild.OPA, "v"))
	}
	if args[0] != "build" {
		return nil
	}
	made := args[slices.Index(args, "--output")+1]
	sum, err := policySum(".")
	if err != nil {
		return err
	}
	name := filepath.Join(os.Getenv(recordings), sum+".tar.gz")
	if os.Getenv(recordOPA) != "" {
		bundle, err := os.ReadFile(made)
		if err != nil {
			return err
		}
		return os.WriteFile(name, bundle, 0o644)
	}
	recorded, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("nobody has recorded what OPA makes of this policy: go test ./cmd/sandboxd ./examples -update, with opa %s on PATH: %w", regobuild.OPA, err)
	}
	if os.Getenv(realOPA) == "" {
		return os.WriteFile(made, recorded, 0o600)
	}
	if bundle, err := os.ReadFile(made); err != nil || !bytes.Equal(bundle, recorded) {
		return fmt.Errorf("%s is not what OPA makes of this policy (%v): go test ./cmd/sandboxd ./examples -update", name, err)
	}
	return nil
}

// policySum names the policy in a folder by what OPA reads of it.
func policySum(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.rego"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(name), len(data), data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
