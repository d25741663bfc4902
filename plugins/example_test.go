package plugins_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/script"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// staffOnly is a guard in Go.
func staffOnly(_ context.Context, q *abi.Question) abi.Verdict {
	if !slices.Contains(q.User.Roles, "staff") {
		return abi.Deny("role", "only staff may ask")
	}
	return abi.Allow()
}

// desk is an agent with one guest for a tool and one guard.
func desk(module *host.Module, model flow.Model, store session.Store, grants capability.Set, egress *host.Egress) (*flow.Runner, error) {
	weather, err := plugins.New(module, plugins.Config{Grants: grants, Ceiling: grants, Egress: egress})
	if err != nil {
		return nil, err
	}
	agent := &flow.Agent{Name: "desk", Instruction: "Answer questions about the weather.", Model: model, Tools: weather.Tools()}
	guards := []flow.Guard{policies.Func("staff-only", staffOnly, abi.PhaseCall)}
	return flow.NewRunner(agent, store, flow.Config{Guards: guards})
}

// A guest can do what its call was granted. The same question is asked of an
// agent that grants nothing, by someone a guard refuses, and with what it takes.
func Example() {
	scratch, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(scratch)
	ctx := context.Background()
	engine, err := host.Open(ctx, host.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	module, err := engine.Load(ctx, weatherGuest(ctx, engine, scratch))
	if err != nil {
		panic(err)
	}
	ask := func(roles []string, grants ...string) {
		set, err := capability.ParseSet(grants)
		if err != nil {
			panic(err)
		}
		store := session.NewMemory()
		key := session.Key{App: "example", User: "ana", ID: "one"}
		if _, err := store.Create(ctx, key, nil); err != nil {
			panic(err)
		}
		runner, err := desk(module, replies(), store, set, recorded(scratch))
		if err != nil {
			panic(err)
		}
		fmt.Println(answer(ctx, runner, key, roles))
	}
	ask([]string{"staff"})
	ask(nil, "http GET api.weather.example/v1/*")
	ask([]string{"staff"}, "http GET api.weather.example/v1/*")
	// Output:
	// Not possible: http: capability_denied: needs http GET api.weather.example/v1/daily
	// Not possible: policy_denied: only staff may ask
	// Between -3 and 2 °C, snow.
}

// answer asks one question in a session and returns the last text.
func answer(ctx context.Context, runner *flow.Runner, key session.Key, roles []string) string {
	in := flow.Text("Will it snow in Oslo?")
	in.Roles = roles
	text := ""
	for event, err := range runner.Run(ctx, key, in) {
		if err != nil {
			return err.Error()
		}
		text = event.Text()
	}
	return text
}

// weatherGuest builds the plugin that authors begin with and gives it its manifest.
func weatherGuest(ctx context.Context, engine *host.Engine, scratch string) []byte {
	built, err := guestbuild.Build(ctx, "../internal/guestlang/template/go/plugin", guestbuild.Options{CacheDir: filepath.Join(scratch, "guests")})
	if err != nil {
		panic(err)
	}
	manifest, err := engine.Describe(ctx, built.Wasm)
	if err != nil {
		panic(err)
	}
	data, err := manifest.Encode()
	if err != nil {
		panic(err)
	}
	packed, err := wasmbin.SetCustom(built.Wasm, abi.ManifestSection, data)
	if err != nil {
		panic(err)
	}
	return packed
}

// recorded answers in place of the network.
func recorded(scratch string) *host.Egress {
	file := filepath.Join(scratch, "oslo.json")
	err := os.WriteFile(file, []byte(`{"format": 1, "exchanges": [{
		"request": {"url": "https://api.weather.example/v1/daily?days=1&q=Oslo"},
		"response": {"status": 200, "json": {"place": "Oslo", "days": [{"date": "2026-03-01", "min_c": -3, "max_c": 2, "summary": "snow"}]}}}]}`), 0o600)
	if err != nil {
		panic(err)
	}
	cassettes, err := host.OpenCassettes(file)
	if err != nil {
		panic(err)
	}
	return host.NewEgress(cassettes)
}

// replies asks for the forecast and quotes it.
func replies() flow.Model {
	m, err := script.Parse([]byte(`{"format": 1, "rules": [{"reply": [
		{"call": [{"tool": "get_weather", "args": {"place": "Oslo", "days": 1}}]},
		{"either": [
			{"if_error": "call-1", "say": "Not possible: {{call-1.error}}"},
			{"say": "Between {{call-1.days.0.min_c}} and {{call-1.days.0.max_c}} °C, {{call-1.days.0.summary}}."}]}]}]}`), "replies")
	if err != nil {
		panic(err)
	}
	return m
}
