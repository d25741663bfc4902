package host

import (
	"context"
	"encoding/json"
	"errors"
)

// ErrNotFound matches what [Artifacts] returns for an artifact that is not there.
var ErrNotFound = errors.New("not found")

// Access is what one call may reach outside the guest, as far as its grants
// allow. What is nil is refused with capability_denied. The functions and
// methods are called on the goroutine of [Module.Call], one at a time.
type Access struct {
	State     State
	Artifacts Artifacts
	Actions   Actions
	// Emit sends one chunk of a streaming tool, in canonical form. It may block
	// until the receiver is ready. An error ends the call as cancelled.
	Emit func(ctx context.Context, chunk json.RawMessage) error
	// Egress sends HTTP requests.
	Egress *Egress
	// Log takes one line: level is debug, info, warn or error; the message is
	// bounded and escaped, and is what a guest chose to say.
	Log func(level, message string)
}

// State reads and writes state values. Keys have their scope: session:, app:,
// user: or temp:. Values are JSON in canonical form.
//
// Errors of these interfaces are failures of the host, such as a store that is
// down: the guest reads storage_unavailable, and the text goes to the operator's
// log alone.
type State interface {
	// Get returns a value; false means that there is none.
	Get(ctx context.Context, key string) (json.RawMessage, bool, error)
	// Set writes all values or none.
	Set(ctx context.Context, values map[string]json.RawMessage) error
}

// Artifacts reads and writes artifacts.
type Artifacts interface {
	List(ctx context.Context) ([]string, error)
	// Read returns at most n bytes from offset of a version, 0 for the newest.
	// Nothing means the end. What does not exist is [ErrNotFound].
	Read(ctx context.Context, name string, version, offset int64, n int) ([]byte, error)
	// Save stores a new version and returns its number. Data is not kept.
	Save(ctx context.Context, name, mime string, data []byte) (int64, error)
}

// Actions are what a tool may ask of the flow. An error says that the action is
// not possible in this call; its text is for the guest's author, so it holds
// nothing internal.
type Actions interface {
	// Confirm asks a person about this call.
	Confirm(hint string, payload json.RawMessage) error
	// Transfer hands the conversation to another agent after this step.
	Transfer(agent string) error
	Escalate() error
	SkipSummary() error
}
