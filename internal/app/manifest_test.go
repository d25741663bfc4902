package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A schema of settings may lie beside the manifest, where nothing else is read from.
func TestManifestWithASchemaBesideIt(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("settings.schema.json", "{\"type\": \"object\",\n \"additionalProperties\": false}\n")
	put("twice.json", `{"type":"object","type":"object"}`)
	put("text.json", `"settings.schema.json"`)
	put("large.json", "{"+strings.Repeat(" ", abi.MaxManifestBytes)+"}")
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	put("sub/s.json", `{}`)
	read := func(settings, dir string) (string, error) {
		m, err := ParseManifest([]byte("abi: 1\nname: g\nversion: 1.0.0\nguards: [{name: a, phases: [call]}, {name: b, phases: [call], settings: "+settings+"}]\n"), dir)
		if err != nil {
			return "", err
		}
		if m.Guards[0].Settings != nil {
			t.Errorf("settings %s of another guard", m.Guards[0].Settings)
		}
		return string(m.Guards[1].Settings), nil
	}
	for settings, want := range map[string]string{
		"settings.schema.json": `{"additionalProperties":false,"type":"object"}`,
		"{type: object}":       `{"type":"object"}`,
	} {
		if got, err := read(settings, dir); got != want || err != nil {
			t.Errorf("%s: %s, %v", settings, got, err)
		}
	}
	for settings, want := range map[string]string{
		"none.json":  `guards[1].settings: "none.json": no such file beside the manifest`,
		"sub/s.json": "beside the manifest", `'sub\s.json'`: "beside the manifest", "..": "beside the manifest", "''": "beside the manifest", "sub": "sub",
		"twice.json": `"twice.json": `, "text.json": "want a schema", "large.json": "bytes exceed",
	} {
		if got, err := read(settings, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, error %v, want %s", settings, got, err, want)
		}
	}
	if _, err := read("settings.schema.json", ""); err == nil || !strings.Contains(err.Error(), "want a schema") {
		t.Errorf("without a folder: %v", err)
	}
}
