package guesttest

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// validate checks a document against a schema of the manifest, as the flow does; no
// schema checks nothing.
func validate(t *testing.T, schema, document json.RawMessage) error {
	t.Helper()
	if len(schema) == 0 {
		return nil
	}
	var s jsonschema.Schema
	err := json.Unmarshal(schema, &s)
	var resolved *jsonschema.Resolved
	if err == nil {
		resolved, err = s.Resolve(nil)
	}
	if err != nil {
		t.Fatalf("guesttest: schema: %v", err)
	}
	v, err := abi.Unmarshal(document)
	if err != nil {
		return err
	}
	return resolved.Validate(abi.Numbers(v))
}
