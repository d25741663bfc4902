package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// ParseManifest reads a manifest that someone wrote in JSON or YAML. The rules are
// those of [abi.ParseManifest]: unknown and repeated keys are errors. The settings of a guard
// may be the name of a file beside the manifest, in the folder dir, that holds their schema
// in JSON; it becomes part of what is returned. Without dir that is an error.
func ParseManifest(data []byte, dir string) (*abi.Manifest, error) {
	if len(data) > abi.MaxManifestBytes {
		return nil, fmt.Errorf("manifest: %d bytes exceed %d", len(data), abi.MaxManifestBytes)
	}
	text := data
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' {
		var err error
		if text, err = ParseJSON(data); err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
	}
	text, err := withSchemas(text, dir)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return abi.ParseManifest(text)
}

// withSchemas puts schemas of settings in the place of the names of their files. What is not
// a manifest it leaves to others.
func withSchemas(text []byte, dir string) ([]byte, error) {
	var m map[string]json.RawMessage
	var guards []map[string]json.RawMessage
	if abi.Decode(text, &m) != nil || abi.Decode(m["guards"], &guards) != nil {
		return text, nil
	}
	read := false
	for i, g := range guards {
		var name string
		if len(g["settings"]) == 0 || json.Unmarshal(g["settings"], &name) != nil {
			continue
		}
		where := fmt.Sprintf("guards[%d].settings: %q", i, name)
		if dir == "" || name == "" || name == ".." || strings.ContainsAny(name, `/\`) {
			return nil, fmt.Errorf("%s: want a schema, or the name of a file with one beside the manifest", where)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no such file beside the manifest", where)
		}
		if err == nil && len(data) > abi.MaxManifestBytes {
			err = fmt.Errorf("%d bytes exceed %d", len(data), abi.MaxManifestBytes)
		}
		if err == nil {
			g["settings"], err = abi.Canonical(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if first := g["settings"][0]; first != '{' && first != 't' && first != 'f' {
			return nil, fmt.Errorf("%s: want a schema", where)
		}
		read = true
	}
	if !read {
		return text, nil
	}
	var err error
	if m["guards"], err = abi.Marshal(guards); err != nil {
		return nil, err
	}
	return abi.Marshal(m)
}

// ParseJSON reads one document that someone wrote in JSON or YAML, and returns it in
// canonical form. Unknown tags, aliases and repeated keys are errors.
func ParseJSON(data []byte) ([]byte, error) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		return abi.Canonical(data)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return nil, errors.New("empty")
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is a second document")
	}
	v, err := toJSON(doc.Content[0], 1)
	if err != nil {
		return nil, err
	}
	return abi.Marshal(v)
}
