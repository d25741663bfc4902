package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/script"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// open makes a runtime with a folder of plugins, a tool and a guard in Go.
func open(ctx context.Context, dir string, egress *host.Egress, log audit.Sink, store session.Store) (*flow.Runner, io.Closer, error) {
	engine, err := host.Open(ctx, host.Config{}) // zero limits are the documented defaults
	if err != nil {
		return nil, nil, err
	}
	ceiling, err := capability.ParseSet([]string{"http GET api.weather.example/*"})
	if err != nil {
		return nil, nil, errors.Join(err, engine.Close())
	}
	set, err := plugins.OpenDir(ctx, engine, dir, plugins.DirConfig{
		Grants: map[string][]string{"weather": {"http GET api.weather.example/v1/*"}}, // not named: nothing
		Each:   plugins.Config{Ceiling: ceiling, Egress: egress, Audit: log},
	})
	if err != nil {
		return nil, nil, errors.Join(err, engine.Close())
	}
	agent := &flow.Agent{
		Name: "desk", Instruction: "Answer questions about stock and weather.", Model: deskReplies(),
		Tools: append(set.Tools, stockTool), Hooks: set.Hooks,
	}
	r, err := flow.NewRunner(agent, store, flow.Config{Audit: log, Guards: []flow.Guard{stockRule}})
	if err != nil {
		return nil, nil, errors.Join(err, engine.Close())
	}
	return r, engine, nil
}

type asked struct {
	SKU string `json:"sku"`
}

type stock struct {
	Pieces int `json:"pieces"`
}

// stockTool is a tool in Go: the same dispatcher, schema check, guards and audit, and no sandbox.
var stockTool = flow.NewTool(flow.Spec{Name: "stock", Description: "How many of an article are in store.", Effects: abi.None},
	func(_ *flow.ToolContext, in asked) (stock, error) {
		n, ok := map[string]int{"A-1": 12}[in.SKU]
		if !ok {
			return stock{}, fmt.Errorf("no article %q", in.SKU)
		}
		return stock{n}, nil
	})

// stockRule is a guard in Go: an error, a panic or a late answer denies, as for a guest.
var stockRule = policies.Func("stock-rule", func(_ context.Context, q *abi.Question) abi.Verdict {
	switch {
	case q.Call.Tool != "stock":
		return abi.Allow()
	case !slices.Contains(q.User.Roles, "staff"):
		return abi.Deny("role", "only staff may look at stock")
	}
	return abi.Confirm("stock", "Look at stock?")
}, abi.PhaseCall)

// show prints what is said.
func show(events func(yield func(*session.Event, error) bool)) error {
	for ev, err := range events {
		if err != nil {
			return err // the run ended; everything yielded so far is stored
		}
		if text := ev.Text(); text != "" {
			fmt.Printf("%s: %s\n", ev.Author, text)
		}
	}
	return nil
}

// decide answers what waits in a session, and goes on: a decision names the digest of the arguments that the
// person saw, and works once.
func decide(ctx context.Context, r *flow.Runner, store session.Store, key session.Key, in flow.Input, who string, ok func(session.Question) bool) error {
	questions, err := store.Questions(ctx, key)
	if err != nil {
		return err
	}
	for _, q := range questions {
		if q.State != session.Pending {
			continue
		}
		if _, err := r.Decide(ctx, key, q.ID, session.Decision{Approve: ok(q), By: who, Via: "example", ArgsSHA256: q.ArgsSHA256}); err != nil {
			return err
		}
	}
	return show(r.Resume(ctx, key, in))
}

// A runtime with a folder of plugins, a tool and a guard in Go, and a person who is asked.
func ExampleOpenDir() {
	scratch, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(scratch)
	ctx := context.Background()
	if err := fill(ctx, filepath.Join(scratch, "plugins")); err != nil {
		panic(err)
	}
	store := session.NewMemory()
	r, engine, err := open(ctx, filepath.Join(scratch, "plugins"), recorded(scratch), &audit.Memory{}, store)
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	key := session.Key{App: "example", User: "ana", ID: "one"}
	if _, err := store.Create(ctx, key, nil); err != nil {
		panic(err)
	}
	in := flow.Text("Will it snow in Oslo?")
	in.Roles = []string{"staff"}
	if err := show(r.Run(ctx, key, in)); err != nil {
		panic(err)
	}
	in.Content = flow.Text("How many A-1 are there?").Content
	if err := show(r.Run(ctx, key, in)); err != nil {
		panic(err)
	}
	staff := flow.Input{Roles: []string{"staff"}}
	if err := decide(ctx, r, store, key, staff, "bo", func(q session.Question) bool { return q.Tool == "stock" }); err != nil {
		panic(err)
	}
	// Output:
	// desk: Between -3 and 2 °C, snow.
	// desk: There are 12.
}

// fill builds a plugin into a folder, as plugin build does.
func fill(ctx context.Context, dir string) error {
	engine, err := host.Open(ctx, host.Config{})
	if err != nil {
		return err
	}
	defer engine.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "weather.wasm"), weatherGuest(ctx, engine, filepath.Join(dir, "cache")), 0o600)
}

// deskReplies asks for what is wanted and quotes it.
func deskReplies() flow.Model {
	m, err := script.Parse([]byte(`{"format": 1, "rules": [
		{"when": {"contains": "snow"}, "reply": [
			{"call": [{"tool": "get_weather", "args": {"place": "Oslo", "days": 1}}]},
			{"say": "Between {{call-1.days.0.min_c}} and {{call-1.days.0.max_c}} °C, {{call-1.days.0.summary}}."}]},
		{"reply": [
			{"call": [{"tool": "stock", "args": {"sku": "A-1"}}]},
			{"say": "There are {{call-1.pieces}}."}]}]}`), "replies")
	if err != nil {
		panic(err)
	}
	return m
}
