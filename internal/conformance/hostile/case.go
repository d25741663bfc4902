package hostile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Stage is how far a case goes.
type Stage string

// The stages.
const (
	StageUpload Stage = "upload" // the module is given to what takes uploads
	StageCall   Stage = "call"   // and one of its exports is called as a tool
	StageGuard  Stage = "guard"  // it is a guard in front of a tool, which is called
)

// A Case is one document of a corpus.
type Case struct {
	ID     string `json:"id"`
	Group  string `json:"group"`
	Doc    string `json:"doc"`
	Threat string `json:"threat"`
	Stage  Stage  `json:"stage"`

	Module   moduleSpec `json:"module"`
	Manifest *manifest  `json:"manifest"`
	Grants   []string   `json:"grants"`
	Limits   limits     `json:"limits"`

	Call     callSpec   `json:"call"`
	Calls    []callSpec `json:"calls"`    // instead of Call: one after the other
	Repeat   int        `json:"repeat"`   // times, one after the other; 0 is 1
	Parallel int        `json:"parallel"` // times, all at once
	Tenants  []string   `json:"tenants"`  // take turns

	Expect expectation `json:"expect"`
}

// A moduleSpec says how the generator makes the module. The runner reads only
// what it needs to know that it has the right one.
type moduleSpec struct {
	Gen    string `json:"gen"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
}

// UnmarshalJSON implements [json.Unmarshaler]. The other members are the
// generator's.
func (m *moduleSpec) UnmarshalJSON(data []byte) error {
	type plain moduleSpec
	return json.Unmarshal(data, (*plain)(m))
}

type manifest struct {
	Tools []struct {
		Name        string          `json:"name"`
		Export      string          `json:"export"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	Guard *struct {
		Export  string      `json:"export"`
		Phases  []abi.Phase `json:"phases"`
		Mutates bool        `json:"mutates"`
	} `json:"guard"`
}

type limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	WallMS      int64 `json:"wall_ms"`
	Fuel        int64 `json:"fuel"`
	OutputBytes int64 `json:"output_bytes"`
	HostCalls   int   `json:"host_calls"`
	LogBytes    int64 `json:"log_bytes"`
	Depth       int   `json:"depth"`
}

type callSpec struct {
	Export    string          `json:"export"`
	Input     json.RawMessage `json:"input"`
	InputText string          `json:"input_text"`
	Outcome   outcomes        `json:"outcome"` // of one of Calls; default the case's
	Output    json.RawMessage `json:"output"`  // likewise
}

// An expectation is what must come of a case. Zero fields expect nothing, but
// for those whose zero means something, which are pointers.
type expectation struct {
	Outcome       outcomes        `json:"outcome"`
	Output        json.RawMessage `json:"output"`
	OutputText    string          `json:"output_text"`
	OutputTextAny []string        `json:"output_text_any"`
	Reason        string          `json:"reason"`

	MaxWallMS int64 `json:"max_wall_ms"`
	MaxRSSMB  int64 `json:"max_rss_mb"`
	GCPauseMS int64 `json:"gc_pause_ms"`
	FuelEqual bool  `json:"fuel_equal"`

	LogBytesMax    *int `json:"log_bytes_max"`
	LogRecords     *int `json:"log_records"`
	StdoutBytesMax *int `json:"stdout_bytes_max"`
	ConnectionsMax *int `json:"connections_max"`
	ErrorCharsMax  int  `json:"error_chars_max"`
	NoActions      bool `json:"no_actions"`

	HandlerStarted *bool           `json:"handler_started"`
	HandlerInput   json.RawMessage `json:"handler_input"`
	HandlerOutput  json.RawMessage `json:"handler_output"`

	Audit           []string `json:"audit"`
	ProcessSurvives bool     `json:"process_survives"`
}

// outcomes are the codes of which one must come: in a document one text or a list.
type outcomes []abi.Code

// UnmarshalJSON implements [json.Unmarshaler].
func (o *outcomes) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*o = make(outcomes, 1)
		return json.Unmarshal(data, &(*o)[0])
	}
	return json.Unmarshal(data, (*[]abi.Code)(o))
}

// A Corpus is where the cases and their modules are.
type Corpus struct {
	Dir     string // with cases/ and modules/
	Modules string // with ID.wasm for each case
}

// Load reads the cases of a corpus, sorted by file name. A case with a member that
// is not known is an error: it would expect something that nobody looks at.
func (c Corpus) Load() ([]*Case, error) {
	files, err := filepath.Glob(filepath.Join(c.Dir, "cases", "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no cases: %w", filepath.Join(c.Dir, "cases"), fs.ErrNotExist)
	}
	var cases []*Case
	for _, f := range files {
		one, err := readCase(f)
		if err != nil {
			return nil, err
		}
		cases = append(cases, one)
	}
	return cases, nil
}

func readCase(file string) (*Case, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	c := &Case{}
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	name := strings.TrimSuffix(filepath.Base(file), ".json")
	switch {
	case c.ID != name:
		return nil, fmt.Errorf("%s: id is %q", filepath.Base(file), c.ID)
	case c.Stage != StageUpload && c.Stage != StageCall && c.Stage != StageGuard:
		return nil, fmt.Errorf("%s: stage %q: want upload, call or guard", filepath.Base(file), c.Stage)
	case len(c.Expect.Outcome) == 0 || !c.Expect.ProcessSurvives || c.Expect.MaxWallMS <= 0 || c.Expect.MaxRSSMB <= 0:
		return nil, fmt.Errorf("%s: expects no outcome, no survival, or no bound on time or memory", filepath.Base(file))
	case c.Stage == StageGuard && (c.Manifest == nil || c.Manifest.Guard == nil):
		return nil, fmt.Errorf("%s: stage guard without a guard", filepath.Base(file))
	}
	return c, nil
}

// module returns the bytes of the case's module.
func (c Corpus) module(k *Case) ([]byte, error) {
	wasm, err := os.ReadFile(filepath.Join(c.Modules, k.ID+".wasm"))
	if err != nil {
		return nil, err
	}
	if k.Module.Gen == "guard" { // made of our own verdicts
		return wasm, nil
	}
	sum := sha256.Sum256(wasm)
	if digest := hex.EncodeToString(sum[:]); digest != k.Module.SHA256 {
		return nil, fmt.Errorf("%s.wasm: %d bytes with digest %s, the case has %d with %s: build the modules again", k.ID, len(wasm), digest, k.Module.Size, k.Module.SHA256)
	}
	return wasm, nil
}

// named returns a lawful module of the corpus, with a manifest.
func (c Corpus) named(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(c.Dir, "modules", name+".wat.hex"))
	if err != nil {
		return nil, err
	}
	wasm, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return withManifest(wasm, &abi.Manifest{Tools: []abi.Tool{{Name: name, Export: "run", Raw: true}}, Requests: []string{"log"}})
}

// withManifest writes a manifest into a module. The manifest may be one that the
// product must refuse.
func withManifest(wasm []byte, m *abi.Manifest) ([]byte, error) {
	m.ABI, m.Name, m.Version = abi.Version, "hostile", "1"
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return wasmbin.SetCustom(wasm, abi.ManifestSection, data)
}

// packed returns the module as its author would upload it: with the manifest that
// the case describes, or as it is if there is no place for one.
func (k *Case) packed(wasm []byte) []byte {
	m := &abi.Manifest{Requests: grantable(k.Grants).Lines()}
	switch {
	case k.Manifest != nil && k.Manifest.Guard != nil:
		g := k.Manifest.Guard
		guard := abi.Guard{Name: "judge", Export: g.Export, Phases: g.Phases}
		if g.Mutates {
			guard.Mutates = g.Phases
		}
		m.Guards, m.Requests = []abi.Guard{guard}, nil
	case k.Manifest != nil:
		for _, t := range k.Manifest.Tools {
			m.Tools = append(m.Tools, abi.Tool{Name: t.Name, Export: t.Export, Description: t.Description, Input: t.InputSchema, Raw: true})
		}
	default:
		for _, export := range k.exports() {
			m.Tools = append(m.Tools, abi.Tool{Name: toolName(export), Export: export, Raw: true})
		}
	}
	for example, name := range reserved {
		wasm = bytes.ReplaceAll(wasm, []byte(example), []byte(name))
	}
	if out, err := withManifest(wasm, m); err == nil {
		return out
	}
	return wasm
}

// reserved are names of ours for those that the corpus has as examples. They are
// as long as these.
var reserved = map[string]string{
	"sandboxd:manifest": abi.ManifestSection,
	"__sbx_fuel":        "sandboxd:x",
}

// toolName is what the tool of an export is called. Exports of the corpus may have
// names that no tool has.
func toolName(export string) string { return "call_" + strings.ToLower(export) }

// exports returns the exports that are called, each once.
func (k *Case) exports() []string {
	var all []string
	seen := map[string]bool{}
	for _, c := range append([]callSpec{k.Call}, k.Calls...) {
		if c.Export != "" && !seen[c.Export] {
			seen[c.Export] = true
			all = append(all, c.Export)
		}
	}
	if len(all) == 0 {
		all = []string{"run"}
	}
	return all
}

// host returns what the case overrides.
func (l limits) host() host.Limits {
	return host.Limits{MemoryBytes: l.MemoryBytes, Wall: ms(l.WallMS), Fuel: l.Fuel, Depth: l.Depth,
		OutputBytes: l.OutputBytes, HostCalls: l.HostCalls, LogBytes: l.LogBytes}
}
