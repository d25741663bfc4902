package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
)

// A Vector is one scenario. Members of kinds that are not built yet are kept
// raw, so that they are noticed and not ignored.
type Vector struct {
	Format   int      `json:"format"`
	Name     string   `json:"name"`
	Doc      string   `json:"doc"`
	Features []string `json:"features"`
	Basis    string   `json:"basis"`
	Notes    string   `json:"notes"`
	Kind     string   `json:"kind"`

	Agent             *agentSpec              `json:"agent"`
	Tools             map[string]*toolSpec    `json:"tools"`
	Toolsets          map[string]*toolsetSpec `json:"toolsets"`
	Plugins           []pluginSpec            `json:"plugins"`
	Model             map[string][]modelStep  `json:"model"`
	Turns             []turnSpec              `json:"turns"`
	InitialState      map[string]any          `json:"initial_state"`
	SeedEvents        []seedEvent             `json:"seed_events"`
	Artifacts         []artifactSpec          `json:"artifacts"`
	NoArtifactService bool                    `json:"no_artifact_service"`
	Memory            []memorySpec            `json:"memory"`
	Invocation        *struct {
		Branch         string `json:"branch"`
		IsolationScope string `json:"isolation_scope"`
	} `json:"invocation"`
	Compaction *compactionSpec                  `json:"compaction"`
	Chunks     []*genai.GenerateContentResponse `json:"chunks"`
	Unordered  []string                         `json:"unordered"`
	Loose      []string                         `json:"loose"`
	Expect     map[string]any                   `json:"expect"`
}

type agentSpec struct {
	Name              string                       `json:"name"`
	Type              string                       `json:"type"`
	Description       string                       `json:"description"`
	Instruction       string                       `json:"instruction"`
	GlobalInstruction string                       `json:"global_instruction"`
	Provider          *string                      `json:"instruction_provider"`
	GlobalProvider    *string                      `json:"global_instruction_provider"`
	ProviderError     string                       `json:"instruction_provider_error"`
	Mode              string                       `json:"mode"`
	IncludeContents   string                       `json:"include_contents"`
	OutputKey         string                       `json:"output_key"`
	OutputSchema      json.RawMessage              `json:"output_schema"`
	InputSchema       json.RawMessage              `json:"input_schema"`
	GenerateConfig    *genai.GenerateContentConfig `json:"generate_config"`
	NoParent          bool                         `json:"disallow_transfer_to_parent"`
	NoPeers           bool                         `json:"disallow_transfer_to_peers"`
	SubAgents         []*agentSpec                 `json:"sub_agents"`
	Tools             []string                     `json:"tools"`
	Toolsets          []string                     `json:"toolsets"`
	Callbacks         []hookSpec                   `json:"callbacks"`
	ModelName         string                       `json:"model_name"`
	ModelBackend      string                       `json:"model_backend"`
	NoModel           bool                         `json:"no_model"`
	MaxIterations     int                          `json:"max_iterations"`
}

type toolSpec struct {
	Kind              string           `json:"kind"`
	Name              string           `json:"name"`
	Description       string           `json:"description"`
	InputSchema       json.RawMessage  `json:"input_schema"`
	OutputSchema      json.RawMessage  `json:"output_schema"`
	LongRunning       bool             `json:"long_running"`
	Confirm           bool             `json:"require_confirmation"`
	ConfirmIf         *confirmIf       `json:"confirm_if"`
	Do                []map[string]any `json:"do"`
	Chunks            []string         `json:"chunks"`
	ErrorAfter        *int             `json:"error_after"`
	Error             string           `json:"error"`
	PanicAfter        *int             `json:"panic_after"`
	Panic             string           `json:"panic"`
	AppendInstruction string           `json:"append_instruction"`
	Agent             *agentSpec       `json:"agent"`
	Skip              bool             `json:"skip_summarization"`
	Native            json.RawMessage  `json:"native"`
	Examples          []flow.Example   `json:"examples"`
}

type confirmIf struct {
	Arg  string  `json:"arg"`
	Over float64 `json:"over"`
}

type toolsetSpec struct {
	Kind              string        `json:"kind"`
	Tools             []string      `json:"tools"`
	ToolsPerList      [][]string    `json:"tools_per_list"`
	ListError         string        `json:"list_error"`
	AppendInstruction string        `json:"append_instruction"`
	MCPTools          []mcpToolSpec `json:"mcp_tools"`
	WithConfirmation  bool          `json:"with_confirmation"`
	Confirm           bool          `json:"require_confirmation"`
	ConfirmIf         *confirmIf    `json:"confirm_if"`
	Filter            []string      `json:"filter"`
}

type pluginSpec struct {
	Name  string     `json:"name"`
	Hooks []hookSpec `json:"hooks"`
}

type hookSpec struct {
	Hook   string           `json:"hook"`
	Tool   string           `json:"tool"`
	OnCall int              `json:"on_call"`
	Do     []map[string]any `json:"do"`
}

type modelStep struct {
	Responses []struct {
		Content      *genai.Content `json:"content"`
		Partial      bool           `json:"partial"`
		TurnComplete bool           `json:"turn_complete"`
		Interrupted  bool           `json:"interrupted"`
		ErrorCode    string         `json:"error_code"`
		ErrorMessage string         `json:"error_message"`
		PromptTokens int32          `json:"prompt_token_count"`
		Error        *string        `json:"error"`
	} `json:"responses"`
}

type turnSpec struct {
	Message   *genai.Content `json:"message"`
	RunConfig struct {
		StreamingMode string `json:"streaming_mode"`
		SaveBlobs     bool   `json:"save_input_blobs_as_artifacts"`
	} `json:"run_config"`
	StateDelta map[string]any `json:"state_delta"`
	StopAfter  int            `json:"stop_after_events"`
	Session    string         `json:"session"`
	User       string         `json:"user"`
}

type seedEvent struct {
	Author              string         `json:"author"`
	Content             *genai.Content `json:"content"`
	Branch              string         `json:"branch"`
	IsolationScope      string         `json:"isolation_scope"`
	LongRunningToolIDs  []string       `json:"long_running_tool_ids"`
	InputTranscription  string         `json:"input_transcription"`
	OutputTranscription string         `json:"output_transcription"`
	Summary             string         `json:"compaction_summary"`
}

func (s seedEvent) event() *session.Event {
	ev := &session.Event{Author: s.Author, Branch: s.Branch, IsolationScope: s.IsolationScope, InvocationID: "seed-inv",
		LongRunningToolIDs: s.LongRunningToolIDs}
	ev.Content = s.Content
	if s.InputTranscription != "" {
		ev.InputTranscription = &genai.Transcription{Text: s.InputTranscription}
	}
	if s.OutputTranscription != "" {
		ev.OutputTranscription = &genai.Transcription{Text: s.OutputTranscription}
	}
	return ev
}

type memorySpec struct {
	Author    string    `json:"author"`
	Text      string    `json:"text"`
	Timestamp time.Time `json:"timestamp"`
}

type compactionSpec struct {
	Interval        int      `json:"compaction_interval"`
	Overlap         int      `json:"overlap_size"`
	TokenThreshold  int      `json:"token_threshold"`
	Retention       int      `json:"event_retention_size"`
	Summaries       []string `json:"summaries"`
	SummarizerError string   `json:"summarizer_error"`
}

type artifactSpec struct {
	Name string      `json:"name"`
	Part *genai.Part `json:"part"`
}

// Load reads the vectors of a file or of the files *.json of a folder, in the order
// of their names. A folder without any is an error. Errors name a file of the
// folder, and not path itself.
func Load(path string) ([]*Vector, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		v, err := read(path)
		if err != nil {
			return nil, err
		}
		return []*Vector{v}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no vector found: no file *.json in it")
	}
	slices.Sort(files)
	var vectors []*Vector
	for _, f := range files {
		v, err := read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(f), err)
		}
		vectors = append(vectors, v)
	}
	return vectors, nil
}

func read(file string) (*Vector, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// Parse reads one vector. Unknown members are errors.
func Parse(data []byte) (*Vector, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber()
	v := &Vector{}
	if err := d.Decode(v); err != nil {
		return nil, err
	}
	if v.Format != 1 || v.Name == "" {
		return nil, fmt.Errorf("format %d, name %q: want format 1 and a name", v.Format, v.Name)
	}
	return v, nil
}
