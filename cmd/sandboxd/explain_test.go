package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestEveryCodeIsExplained: a code that the contract has is one that explain knows.
func TestEveryCodeIsExplained(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "sdk", "abi", "code.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\t\w+\s+Code = "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(found) != len(meanings) {
		t.Errorf("%d codes in the contract, %d are explained", len(found), len(meanings))
	}
	for _, m := range found {
		if meanings[abi.Code(m[1])].what == "" {
			t.Errorf("code %s is not explained", m[1])
		}
		if m[1] != string(abi.OK) && meanings[abi.Code(m[1])].then == "" {
			t.Errorf("code %s: nothing is said that could be done", m[1])
		}
	}
}
