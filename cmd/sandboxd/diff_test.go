package main

import (
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestDiffWidens checks for every kind of change, both ways, whether it is one
// that an operator must decide about anew.
func TestDiffWidens(t *testing.T) {
	base := func() *abi.Manifest {
		return &abi.Manifest{Name: "m", Version: "1", Requests: []string{"http GET api.example.com/v1/*"},
			Tools: []abi.Tool{{Name: "t", Effects: abi.Idempotent, Confirm: true},
				{Name: "s", Input: []byte(`{"type":"object","properties":{"a":{"type":"string"}}}`), Output: []byte(`{"type":"number"}`)}},
			Guards: []abi.Guard{{Name: "g", Phases: []abi.Phase{abi.PhaseCall, abi.PhaseResult}, Settings: []byte(`{"type":"object","properties":{"n":{"type":"number"}}}`)},
				{Name: "h", Phases: []abi.Phase{abi.PhaseCall}}}}
	}
	for _, c := range []struct {
		name       string
		change     func(*abi.Manifest)
		wider, way bool // there, and on the way back
	}{
		{"nothing", func(*abi.Manifest) {}, false, false},
		{"another host", func(m *abi.Manifest) { m.Requests = append(m.Requests, "http GET b.example.com/*") }, true, false},
		{"narrower path", func(m *abi.Manifest) { m.Requests = []string{"http GET api.example.com/v1/a"} }, false, true},
		{"another verb", func(m *abi.Manifest) { m.Requests = []string{"http GET,POST api.example.com/v1/*"} }, true, false},
		{"spelled otherwise", func(m *abi.Manifest) { m.Requests = []string{"http GET https://API.example.com:443/v1/*"} }, false, false},
		{"no capability", func(m *abi.Manifest) { m.Requests = append(m.Requests, "http GET *.com") }, true, false},
		{"another tool", func(m *abi.Manifest) { m.Tools = append(m.Tools, abi.Tool{Name: "u"}) }, true, false},
		{"a person asked less", func(m *abi.Manifest) { m.Tools[0].Confirm = false }, true, false},
		{"said to change nothing", func(m *abi.Manifest) { m.Tools[0].Effects = abi.None }, true, false},
		{"said to be once", func(m *abi.Manifest) { m.Tools[0].Effects = abi.Once }, false, true},
		{"description", func(m *abi.Manifest) { m.Tools[0].Description = "better" }, true, false},
		{"a schema where there was none", func(m *abi.Manifest) { m.Tools[0].Input = []byte(`{"type":"object"}`) }, false, true},
		{"argument", func(m *abi.Manifest) {
			m.Tools[1].Input = []byte(`{"type":"object","properties":{"b":{"type":"string"}}}`)
		}, true, true},
		{"argument that is named like a text", func(m *abi.Manifest) {
			m.Tools[1].Input = []byte(`{"type":"object","properties":{"a":{"type":"string"},"title":{"type":"string"}}}`)
		}, true, true},
		{"texts of a schema", func(m *abi.Manifest) {
			m.Tools[1].Input = []byte(`{"type":"object","description":"x","properties":{"a":{"type":"string","title":"A"}}}`)
		}, true, true}, // a model reads them
		{"settings of a guard", func(m *abi.Manifest) {
			m.Guards[0].Settings = []byte(`{"type":"object","properties":{"n":{"type":"string"}}}`)
		}, true, true},
		{"a first schema of settings", func(m *abi.Manifest) { m.Guards[1].Settings = []byte(`{"type":"object"}`) }, false, true},
		{"texts of settings", func(m *abi.Manifest) {
			m.Guards[0].Settings = []byte(`{"type":"object","properties":{"n":{"type":"number","description":"how many"}}}`)
		}, false, false},
		{"result", func(m *abi.Manifest) { m.Tools[1].Output = []byte(`{"type":"string"}`) }, true, true},
		{"hook", func(m *abi.Manifest) { m.Hooks = []abi.HookPoint{abi.BeforeTool} }, true, false},
		{"guard looks away", func(m *abi.Manifest) { m.Guards[0].Phases = m.Guards[0].Phases[:1] }, true, false},
		{"guard rewrites", func(m *abi.Manifest) { m.Guards[0].Mutates = []abi.Phase{abi.PhaseCall} }, true, false},
		{"limit", func(m *abi.Manifest) { m.Limits.MemoryBytes = 1 << 20 }, false, true},
		{"limit of requests", func(m *abi.Manifest) { m.Limits.HTTPBytes = 1 << 10 }, false, true},
		{"limit of variables", func(m *abi.Manifest) { m.Limits.VarBytes = 1 << 10 }, false, true},
		{"config", func(m *abi.Manifest) { m.Config = map[string]string{"k": "v"} }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			look := func(m *abi.Manifest) *inspection { return &inspection{Manifest: m, Limits: limitsOf(m)} }
			old, new := base(), base()
			c.change(new)
			widens := func(all []change) bool {
				for i, x := range all {
					if x.Widens && i > 0 && !all[i-1].Widens {
						t.Errorf("%q comes after what widens nothing", x.Text)
					}
				}
				return len(all) > 0 && all[0].Widens
			}
			there, back := diff(look(old), look(new)), diff(look(new), look(old))
			if widens(there) != c.wider || widens(back) != c.way {
				t.Errorf("widens %v and back %v, want %v and %v\n there %v\n back %v", widens(there), widens(back), c.wider, c.way, there, back)
			}
			if c.name != "nothing" && len(there) == 0 && c.name != "spelled otherwise" {
				t.Error("no change is shown")
			}
		})
	}
}
