package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// ParseManifest reads a manifest that someone wrote in JSON or YAML. The rules are
// those of [abi.ParseManifest]: unknown and repeated keys are errors.
func ParseManifest(data []byte) (*abi.Manifest, error) {
	if len(data) > abi.MaxManifestBytes {
		return nil, fmt.Errorf("manifest: %d bytes exceed %d", len(data), abi.MaxManifestBytes)
	}
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		return abi.ParseManifest(data)
	}
	text, err := ParseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return abi.ParseManifest(text)
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
