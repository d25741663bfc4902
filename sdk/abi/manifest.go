package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a manifest. [ParseManifest] refuses what exceeds them.
const (
	MaxManifestBytes    = 256 << 10 // the whole document
	MaxTools            = 128       // tools in one module; guards likewise
	MaxDescriptionBytes = 4096      // a description
	MaxRequests         = 128       // requested capabilities
)

// A Manifest is what a module is and what it asks for. It travels in the custom
// section [ManifestSection], so the module's digest covers it.
type Manifest struct {
	ABI         int    `json:"abi"`  // Version
	Name        string `json:"name"` // see [ValidName]
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`

	Tools  []Tool      `json:"tools,omitempty"`
	Hooks  []HookPoint `json:"hooks,omitempty"`
	Guards []Guard     `json:"guards,omitempty"`

	// Requests are capabilities in the text form of package capability. Nothing
	// is given until an operator grants it.
	Requests []string `json:"requests,omitempty"`
	Limits   Limits   `json:"limits,omitzero"`

	// Config are plain values that tools and hooks may read, never secrets. A value
	// that the app gives takes the place of the one here.
	Config map[string]string `json:"config,omitempty"`
}

// A Tool is one tool of a module.
type Tool struct {
	Name        string          `json:"name"` // see [ValidName]
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`  // JSON Schema of the arguments; absent: any object
	Output      json.RawMessage `json:"output,omitempty"` // JSON Schema of the result; absent: anything
	Effects     Effects         `json:"effects,omitempty"`
	LongRunning bool            `json:"long_running,omitempty"`
	Streaming   bool            `json:"streaming,omitempty"`
	Confirm     bool            `json:"confirm,omitempty"` // a person decides before every call
	Export      string          `json:"export,omitempty"`  // the export to call; default ExportCall
	// Raw marks an export of a plain Extism plugin: its input is the arguments
	// alone and its output is the result alone, JSON, or text where Output is
	// there and allows a string. If the export is [ExportStart], leaving with the
	// exit code 0 is returning.
	Raw bool `json:"raw,omitempty"`
}

// A Guard is one guard of a module.
type Guard struct {
	Name     string          `json:"name"` // see [ValidName]
	Phases   []Phase         `json:"phases"`
	Mutates  []Phase         `json:"mutates,omitempty"`  // phases in which it may rewrite
	Settings json.RawMessage `json:"settings,omitempty"` // JSON Schema of its settings; absent: it takes none
	Check    bool            `json:"check,omitempty"`    // answers SettingsCall
	Export   string          `json:"export,omitempty"`   // the export to call; default ExportCall
}

// Effects says what happens when a tool is called, and so whether an interrupted
// call may be sent again.
type Effects string

// The effects. The empty value means [Once].
const (
	None       Effects = "none"       // changes nothing
	Idempotent Effects = "idempotent" // the same call id again changes nothing more
	Once       Effects = "once"       // must not be repeated
)

// Limits are what a module asks for. A zero field asks for the default; what it
// gets is never more than the operator's limit.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	WallMS      int64 `json:"wall_ms,omitempty"`
	Fuel        int64 `json:"fuel,omitempty"`
	HostCalls   int   `json:"host_calls,omitempty"`
	OutputBytes int64 `json:"output_bytes,omitempty"`
	HTTPBytes   int64 `json:"http_bytes,omitempty"` // body of one request, and of one response
	VarBytes    int64 `json:"var_bytes,omitempty"`  // values of Extism's variables together
}

// ValidName reports whether s may name a plugin, tool or guard: a lower-case
// letter, then up to 63 letters, digits, '_' or '-'; not one of the framework's
// own names and not beginning with "adk_" or "sandboxd_".
func ValidName(s string) error {
	switch {
	case !made(s, 64, lower+digits+"_-") || !strings.Contains(lower, s[:1]):
		return fmt.Errorf("name %q: want a lower-case letter, then at most 63 of a-z 0-9 _ -", clip(s, 80))
	case slices.Contains(reserved, s) || strings.HasPrefix(s, "adk_") || strings.HasPrefix(s, "sandboxd_"):
		return fmt.Errorf("name %q: reserved", s)
	}
	return nil
}

// ValidCode reports whether s may be the code of a [Failure] or [Verdict]: 1 to
// 40 of a-z and '_'.
func ValidCode(s string) bool { return made(s, 40, lower+"_") }

// reserved are the names of tools that the framework offers itself.
var reserved = []string{"transfer_to_agent", "set_model_response", "finish_task", "stop_streaming"}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// made reports whether s has 1 to most bytes, all of them from set. It stands in
// for a regular expression, whose package would weigh on every guest.
func made(s string, most int, set string) bool {
	return 0 < len(s) && len(s) <= most && strings.Trim(s, set) == ""
}

// ParseManifest decodes a manifest and checks all that can be checked without
// the module. The error joins every reason for refusal.
func ParseManifest(data []byte) (*Manifest, error) {
	if len(data) > MaxManifestBytes {
		return nil, fmt.Errorf("manifest: %d bytes exceed %d", len(data), MaxManifestBytes)
	}
	var m Manifest
	if err := Decode(data, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

// Validate reports every way in which m breaks the rules of a manifest.
func (m *Manifest) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("manifest: "+format, args...)) }
	if m.ABI != Version {
		bad("abi %d: this host speaks %d", m.ABI, Version)
	}
	if err := ValidName(m.Name); err != nil {
		bad("%w", err)
	}
	if !made(m.Version, 64, lower+upper+digits+".+-") || strings.Contains(".+-", m.Version[:1]) {
		bad("version %q: want a letter or digit, then at most 63 of 0-9 A-Z a-z . + -", clip(m.Version, 80))
	}
	if err := validText(m.Description); err != nil {
		bad("description: %w", err)
	}
	if len(m.Tools) > MaxTools || len(m.Guards) > MaxTools {
		bad("%d tools and %d guards: at most %d of each", len(m.Tools), len(m.Guards), MaxTools)
	}
	if len(m.Tools)+len(m.Hooks)+len(m.Guards) == 0 {
		bad("no tool, hook or guard")
	}
	seen := map[string]bool{}
	for i, t := range m.Tools {
		if err := ValidName(t.Name); err != nil {
			bad("tools[%d]: %w", i, err)
		}
		if seen[t.Name] {
			bad("tools[%d]: %q is there twice", i, t.Name)
		}
		seen[t.Name] = true
		if err := validText(t.Description); err != nil {
			bad("tool %s: description: %w", t.Name, err)
		}
		switch t.Effects {
		case "", None, Idempotent, Once:
		default:
			bad("tool %s: effects %q: want none, idempotent or once", t.Name, clip(string(t.Effects), 40))
		}
		if err := validExport(t.Export); err != nil {
			bad("tool %s: %w", t.Name, err)
		}
		if t.Raw && (t.Export == "" || t.Streaming) {
			bad("tool %s: raw needs an export and cannot stream", t.Name)
		}
		if err := validSchema(t.Input); err != nil {
			bad("tool %s: input: %w", t.Name, err)
		}
		if err := validSchema(t.Output); err != nil {
			bad("tool %s: output: %w", t.Name, err)
		}
	}
	points := map[HookPoint]bool{}
	for _, h := range m.Hooks {
		if !validHookPoint(h) || points[h] {
			bad("hook %q: unknown, or there twice", clip(string(h), 40))
		}
		points[h] = true
	}
	clear(seen)
	for i, g := range m.Guards {
		if err := ValidName(g.Name); err != nil {
			bad("guards[%d]: %w", i, err)
		}
		if seen[g.Name] {
			bad("guards[%d]: %q is there twice", i, g.Name)
		}
		seen[g.Name] = true
		if len(g.Phases) == 0 {
			bad("guard %s: no phases", g.Name)
		}
		phases := map[Phase]bool{}
		for _, p := range g.Phases {
			if !ValidPhase(p) || phases[p] {
				bad("guard %s: phase %q: unknown, or there twice", g.Name, clip(string(p), 40))
			}
			phases[p] = true
		}
		for i, p := range g.Mutates {
			if !phases[p] || slices.Contains(g.Mutates[:i], p) {
				bad("guard %s: mutates %q, which is not one of its phases, or there twice", g.Name, clip(string(p), 40))
			}
		}
		if err := validExport(g.Export); err != nil {
			bad("guard %s: %w", g.Name, err)
		}
		if err := validSchema(g.Settings); err != nil {
			bad("guard %s: settings: %w", g.Name, err)
		}
	}
	if len(m.Requests) > MaxRequests {
		bad("%d requests: at most %d", len(m.Requests), MaxRequests)
	}
	l := m.Limits
	if l.MemoryBytes < 0 || l.WallMS < 0 || l.Fuel < 0 || l.HostCalls < 0 || l.OutputBytes < 0 || l.HTTPBytes < 0 || l.VarBytes < 0 {
		bad("limits: negative")
	}
	if len(m.Config) > 0 && len(m.Tools)+len(m.Hooks) == 0 {
		bad("config: guards have settings")
	}
	for _, key := range slices.Sorted(maps.Keys(m.Config)) {
		if key == "" || len(key) > 128 {
			bad("config: key of %d bytes: want 1 to 128", len(key))
		} else if err := validText(key); err != nil {
			bad("config: key %q: %w", clip(key, 80), err)
		}
	}
	return errors.Join(errs...)
}

// Encode returns the manifest as it is written into [ManifestSection].
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return Canonical(data)
}

// validExport refuses names that no entry point may have: longer than a tool's
// could need, or hiding something from who reads it.
func validExport(s string) error {
	if len(s) > 128 {
		return fmt.Errorf("export: %d bytes exceed 128", len(s))
	}
	if err := validText(s); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// validText refuses text that can hide something from the person who reads it:
// control, bidirectional, tag and zero-width characters (threats MU-17).
func validText(s string) error {
	if len(s) > MaxDescriptionBytes {
		return fmt.Errorf("%d bytes exceed %d", len(s), MaxDescriptionBytes)
	}
	if !utf8.ValidString(s) {
		return errors.New("not UTF-8")
	}
	for _, r := range s {
		if Hidden(r) {
			return fmt.Errorf("character %U is not allowed", r)
		}
	}
	return nil
}

// Hidden reports whether r is invisible or changes how its neighbours are shown:
// a control character other than tab and line feed, or a format character
// (Unicode category Cf: bidirectional controls, zero-width characters, tags).
func Hidden(r rune) bool {
	return r != '\t' && r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}

// clip returns s cut to at most n bytes at a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
