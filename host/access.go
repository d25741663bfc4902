package host

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
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
	KV        KV
	Memory    Memory
	// Secrets are those that requests may use, and that are taken out of what comes
	// back.
	Secrets *Secrets
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

// KV keeps small values and counters of one guest between calls. It is safe for
// concurrent use. Values are JSON in canonical form. A ttl is how long a value
// lives; 0: until it is deleted.
type KV interface {
	// Get returns a value; false means that there is none.
	Get(ctx context.Context, key string) (json.RawMessage, bool, error)
	// Set replaces a value and its ttl. No room is [ErrFull].
	Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error
	// Delete removes a value. What is not there is no error.
	Delete(ctx context.Context, key string) error
	// Add adds n to a counter in one step, unless the sum of a positive n would
	// exceed most, and returns the counter and whether it was added. A counter that
	// is not there is 0, and then takes ttl, which later additions leave as it is. A
	// negative n takes away, down to 0. A value that is no whole number from 0 on is
	// [ErrNoCounter]; no room is [ErrFull].
	Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (count int64, added bool, err error)
}

// ErrFull matches what a [KV] returns when it has no room for a value.
var ErrFull = errors.New("no room")

// ErrNoCounter matches what [KV.Add] returns for a value that is no counter.
var ErrNoCounter = errors.New("no counter")

// Memory finds what was said in earlier sessions of the user.
type Memory interface {
	// Search returns what fits a query, in an order of its own choosing.
	Search(ctx context.Context, query string) ([]abi.MemoryEntry, error)
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
