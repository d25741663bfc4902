package app

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestPinEdits: a digest is written in the style of its entry, and nothing else of
// the file changes.
func TestPinEdits(t *testing.T) {
	for _, c := range []struct{ name, at, text, want string }{
		{"block", "plugins[0].module", "plugins:\n  - name: a\n    module: a.wasm # mine\n    grants: []\n", "plugins:\n  - name: a\n    module: a.wasm\n    digest: D # mine\n    grants: []\n"},
		{"first key", "plugins[0].module", "plugins:\n  - module: a.wasm\n    name: a\n", "plugins:\n  - module: a.wasm\n    digest: D\n    name: a\n"},
		{"flow", "guards[1].policy", "guards:\n  - {name: a, policy: a.wasm}\n  - {name: b, policy: \"b.wasm\", settings: {}}\n", "guards:\n  - {name: a, policy: a.wasm}\n  - {name: b, policy: \"b.wasm\", digest: D, settings: {}}\n"},
		{"member", "guards[0].any_of[1].policy", "guards:\n  - name: g\n    any_of:\n      - policy: a.wasm\n      - policy: b.wasm\n", "guards:\n  - name: g\n    any_of:\n      - policy: a.wasm\n      - policy: b.wasm\n        digest: D\n"},
		{"replaced", "plugins[0].module", "plugins:\n  - name: a\n    digest: 'sha256:old' # was\n    module: a.wasm\n", "plugins:\n  - name: a\n    digest: D # was\n    module: a.wasm\n"},
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(c.text), &doc); err != nil {
			t.Fatal(err)
		}
		entry, key := nodeAt(doc.Content[0], c.at)
		if entry == nil {
			t.Errorf("%s: %s is not there", c.name, c.at)
			continue
		}
		e := pinEdit(entry, key, "D")
		lines := strings.SplitAfter(c.text, "\n")
		line := lines[e.line-1]
		lines[e.line-1] = line[:e.column-1] + e.text + line[e.column-1+e.old:]
		if got := strings.Join(lines, ""); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	if entry, _ := nodeAt(&yaml.Node{Kind: yaml.MappingNode}, "plugins[3].module"); entry != nil {
		t.Error("an entry that is not there is found")
	}
}
