package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// callTool calls a tool through the dispatcher, as the tool of an agent that has
// nothing but this plugin.
func (r *toolRun) callTool(ctx context.Context, module *host.Module) error {
	m := module.Manifest()
	if err := r.chooseTool(m); err != nil {
		return err
	}
	args, err := r.arguments()
	if err != nil {
		return err
	}
	limits := host.DefaultLimits(abi.KindTool).Narrow(host.Asked(m.Limits)).Narrow(r.asked)
	plugin, err := plugins.New(module, plugins.Config{Grants: r.grants, Ceiling: r.grants, Limits: limits, Egress: r.egress, Now: r.clock(), Seed: r.seed,
		Secrets: r.values, KV: host.NewMemoryKV(r.clock()),
		Trace: func(_, _ string, c host.HostCall) { r.trace.call(c) }, TraceBodies: r.trace.bodies})
	if err != nil {
		return err
	}
	var ended flow.CallResult
	runner, key, err := r.runner(ctx, plugin, flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { ended = c }})
	if err != nil {
		return err
	}
	acts, err := call(ctx, runner, key, flow.DirectCall{Tool: r.tool, Args: args})
	if err != nil {
		return err
	}
	return r.report(m, &ended, acts, limits)
}

// callInApp calls a tool of an app: of the first agent that lists it, with the
// app's hooks, guards, grants and audit, in a session of its own.
func (r *toolRun) callInApp(ctx context.Context) error {
	file, err := app.Load(r.path(r.flags.app))
	if err != nil {
		return err
	}
	args, err := r.arguments()
	if err != nil {
		return err
	}
	by, err := r.somebody("")
	if err != nil {
		return err
	}
	var agent string
	file.EachAgent(func(_ string, a *app.Agent) {
		if agent == "" && slices.Contains(a.Tools, r.tool) {
			agent = a.Name
		}
	})
	if near := app.Nearest(r.tool, file.AllTools()); agent == "" && near != "" {
		return misuse("did you mean "+near+"?", "%s: no agent of app %s lists a tool %q", r.flags.app, file.Name, r.tool)
	}
	var ended flow.CallResult
	rt, closeAll, err := r.openApp(ctx, file, app.Options{Logger: r.logger(false), Trace: func(_, _ string, c host.HostCall) { r.trace.call(c) }, Bodies: r.trace.bodies,
		Observer: flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { ended = c }}})
	if err != nil {
		return err
	}
	defer closeAll()
	key, err := rt.Session(ctx, localUser, "s-"+strings.ToLower(rand.Text()[:12]))
	if err != nil {
		return err
	}
	acts, err := call(ctx, rt.Runner, key, flow.DirectCall{Agent: agent, Tool: r.tool, Args: args, By: by})
	if err != nil {
		return err
	}
	return r.report(nil, &ended, acts, host.DefaultLimits(abi.KindTool))
}

// call makes one call and returns what it asked of the flow.
func call(ctx context.Context, runner *flow.Runner, key session.Key, in flow.DirectCall) (session.Actions, error) {
	var acts session.Actions
	for ev, err := range runner.Call(ctx, key, in) {
		if err != nil {
			return acts, err
		}
		if len(ev.Responses()) > 0 {
			acts = ev.Actions
		}
	}
	return acts, nil
}

// chooseTool checks that the module has the tool, or picks its only one.
func (r *toolRun) chooseTool(m *abi.Manifest) error {
	var offered []string
	for _, t := range m.Tools {
		offered = append(offered, t.Name)
	}
	known := "it has " + strings.Join(offered, ", ")
	if len(offered) == 0 {
		return misuse("call an export with --export", "%s: plugin %s has no tool", r.file, m.Name)
	}
	if r.tool == "" && len(offered) > 1 {
		return misuse(known, "%s: name the tool to call", r.file)
	}
	if r.tool == "" {
		r.tool = offered[0]
	}
	for _, name := range offered {
		if name == r.tool {
			return nil
		}
	}
	if near := app.Nearest(r.tool, offered); near != "" {
		known = "did you mean " + near + "?"
	}
	return misuse(known, "%s: plugin %s has no tool %q, and there is no such file", r.file, m.Name, r.tool)
}

// arguments reads --args as strictly as everything that crosses the wall.
func (r *toolRun) arguments() (map[string]any, error) {
	data, err := r.value(r.flags.args)
	if err != nil {
		return nil, err
	}
	v, err := abi.Unmarshal(data)
	if err != nil {
		return nil, &commandError{What: "--args: " + err.Error(), Code: abi.ArgsInvalid, Exit: exitMisused,
			Hint: `an object, such as --args '{"place":"Oslo"}'`}
	}
	args, ok := v.(map[string]any)
	if !ok {
		return nil, &commandError{What: "--args: not an object", Code: abi.ArgsInvalid, Exit: exitMisused,
			Hint: `such as --args '{"place":"Oslo"}'`}
	}
	return args, nil
}

func (r *toolRun) clock() func() time.Time {
	if r.now.IsZero() {
		return nil
	}
	return func() time.Time { return r.now }
}

// runner wires the one call, with the state and artifacts of the command line.
func (r *toolRun) runner(ctx context.Context, plugin *plugins.Plugin, o flow.Observer) (*flow.Runner, session.Key, error) {
	key := session.Key{App: "plugin-run", User: "author", ID: "run-1"}
	state, err := r.state()
	if err != nil {
		return nil, key, err
	}
	store := session.NewMemory()
	if _, err := store.Create(ctx, key, state); err != nil {
		return nil, key, err
	}
	artifacts := flow.NewMemoryArtifacts()
	for _, entry := range r.flags.artifacts {
		name, path, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, key, misuse("", "--artifact %q: want NAME=PATH", entry)
		}
		data, err := r.readFile(path)
		if err != nil {
			return nil, key, err
		}
		part := genai.NewPartFromBytes(data, "application/octet-stream")
		if utf8.Valid(data) {
			part = genai.NewPartFromText(string(data))
		}
		if _, err := artifacts.Save(ctx, key, name, part); err != nil {
			return nil, key, misuse("", "--artifact: %v", err)
		}
	}
	agent := &flow.Agent{Name: "plugin_run", Tools: plugin.Tools()}
	runner, err := flow.NewRunner(agent, store, flow.Config{Artifacts: artifacts, Observer: o, Now: r.clock()})
	return runner, key, err
}

// state reads --state. Keys are spelled as grants spell them.
func (r *toolRun) state() (map[string]any, error) {
	state := map[string]any{}
	for _, entry := range r.flags.state {
		key, text, ok := strings.Cut(entry, "=")
		scope, name, scoped := strings.Cut(key, ":")
		if !ok || !scoped || name == "" || scope != "session" && scope != "user" && scope != "app" && scope != "temp" {
			return nil, misuse(`such as --state 'user:unit="C"'`, "--state %q: want KEY=JSON, where KEY begins with session:, user:, app: or temp:", entry)
		}
		v, err := abi.Unmarshal([]byte(text))
		if err != nil {
			return nil, misuse(fmt.Sprintf(`a text is quoted: --state '%s="…"'`, key), "--state %s: not JSON: %v", key, err)
		}
		state[strings.TrimPrefix(key, "session:")] = v
	}
	return state, nil
}

// report prints how the call ended.
func (r *toolRun) report(m *abi.Manifest, ended *flow.CallResult, acts session.Actions, limits host.Limits) error {
	c := &callReport{Format: 1, Tool: r.tool, Code: ended.Code, Ran: ended.Ran}
	if receipt, ok := ended.Receipt.(host.Receipt); ok && receipt.Module != "" {
		c.Receipt = &receipt
	}
	if data, err := json.Marshal(acts); err == nil && string(data) != "{}" {
		c.Actions = data
	}
	if ended.Code != abi.OK {
		text := r.callText(ended, limits)
		c.Message = text
		return r.finish(c, nil, limits, &commandError{What: r.tool + ": " + text, Code: ended.Code, Hint: r.failureHint(m, ended.Code, ended.Err), Exit: exitNotDone})
	}
	result := []byte("null") // the tool has nothing to say yet
	if ended.Response != nil {
		var err error
		if result, err = abi.Marshal(ended.Response); err != nil {
			return err
		}
	}
	c.Result = result
	return r.finish(c, result, limits, nil)
}

// callText says why a call failed, for its author: what the model reads, then
// what only the operator does.
func (r *toolRun) callText(ended *flow.CallResult, limits host.Limits) string {
	ce, ok := errors.AsType[*flow.CallError](ended.Err)
	switch {
	case !ok && ended.Err != nil:
		return ended.Err.Error()
	case !ok:
		return string(ended.Code)
	case ce.Code == abi.GuestError:
		return "the tool reported: " + ce.Text
	}
	text := ce.Text
	if text == "" {
		text = ce.Code.Sentence()
	}
	if m, ok := errors.AsType[*flow.MismatchError](ce.Err); ok {
		what, by := "arguments", ""
		if ce.Code == abi.GuestOutputInvalid {
			what, by = "result", " by its own schema"
		}
		switch {
		case m.Unknown:
			return fmt.Sprintf("%s %s: not known%s", what, m.At, by)
		case m.Have == "":
			return fmt.Sprintf("%s %s: needed%s, missing", what, m.At, by)
		}
		return fmt.Sprintf("%s %s", what, m)
	}
	if ce.Code == abi.GuestMemory {
		text += ", " + size(limits.MemoryBytes)
	}
	if ce.Code == abi.GuestFuel {
		text += ", " + fuel(limits.Fuel)
	}
	if ce.Err == nil {
		return text
	}
	detail := detailLines(ce.Err.Error())
	if len(detail) == 1 {
		return text + ": " + detail[0]
	}
	const most = 12
	if more := len(detail) - most; more > 0 && !r.flags.full {
		detail = append(detail[:most], fmt.Sprintf("… %d more lines, --full", more))
	}
	return text + "\n" + strings.Join(detail, "\n")
}

// detailLines breaks what the host says of a trap into lines. The host escapes
// the ends of a guest's lines and joins its own with a bar.
func detailLines(detail string) []string {
	detail = strings.NewReplacer(" | ", "\n", "; stderr: ", "\n", `\n`, "\n", `\t`, "  ").Replace(detail)
	var lines []string
	for line := range strings.SplitSeq(detail, "\n") {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// failureHint says what to do about a call that failed.
func (r *toolRun) failureHint(m *abi.Manifest, code abi.Code, err error) string {
	switch code {
	case abi.ArgsInvalid:
		if m, ok := errors.AsType[*flow.MismatchError](err); ok && m.Unknown {
			if near := app.Nearest(m.Name, m.Known); near != "" {
				return "did you mean " + near + "?"
			}
		}
		if r.file == "" {
			return "sandboxd plugin inspect shows the arguments of a plugin's tools"
		}
		return fmt.Sprintf("sandboxd plugin inspect %s shows the arguments", r.file)
	case abi.GuestMemory:
		return fmt.Sprintf("read in pieces, or raise the limit: --limit memory=N here, limits.memory in %s; at most %s", app.FileName, size(host.DefaultLimits(abi.KindTool).MemoryBytes))
	case abi.GuestOutputInvalid:
		if r.file == "" {
			return "sandboxd plugin inspect shows what a plugin's tools return"
		}
		return fmt.Sprintf("sandboxd plugin inspect %s shows what its tools return", r.file)
	case abi.ConfirmationPending:
		return "the tool asks a person first; an app shows the question"
	}
	return r.trace.hint(m, r.flags.replay)
}

// callExport calls an export with no document around its input. A module without
// a manifest is given one for the occasion, so that it can be loaded.
func (r *toolRun) callExport(ctx context.Context, engine *host.Engine, modules app.Modules, g *guestFile) error {
	input, err := r.input()
	if err != nil {
		return err
	}
	wasm := g.wasm
	if bin, err := wasmbin.Decode(wasm); err == nil && len(bin.Custom(abi.ManifestSection)) == 0 {
		manifest := &abi.Manifest{ABI: abi.Version, Name: "unnamed", Version: "0", Tools: []abi.Tool{{Name: "export", Export: r.flags.export, Raw: true}}}
		if wasm, err = modules.Pack(ctx, wasm, manifest); err != nil {
			return r.refused(moduleError(g.name, g.wasm, err))
		}
	}
	module, err := engine.Load(ctx, wasm)
	if err != nil {
		return r.refused(moduleError(g.name, g.wasm, err))
	}
	limits := host.DefaultLimits(abi.KindTool).Narrow(r.asked)
	reply, err := module.Call(ctx, &host.Call{Kind: abi.KindTool, Export: r.flags.export, Input: input, Grants: r.grants, Limits: limits, Now: r.now, Seed: r.seed,
		Config: module.Manifest().Config,
		Access: host.Access{Egress: r.egress, Secrets: r.values, KV: host.NewMemoryKV(r.clock()).Scope(host.KVScope{}), Log: func(string, string) {}}, Trace: r.trace.call, TraceBodies: r.trace.bodies})
	c := &callReport{Format: 1, Export: r.flags.export, Code: abi.OK, Ran: true}
	if failed, ok := errors.AsType[*host.GuestError](err); ok {
		c.Code, c.Message, c.Receipt = failed.Code, guestText(failed), &failed.Receipt
		return r.finish(c, nil, limits, &commandError{What: r.flags.export + ": " + c.Message, Code: failed.Code, Hint: r.failureHint(nil, failed.Code, failed), Exit: exitNotDone})
	}
	if err != nil {
		return err
	}
	c.Receipt = &reply.Receipt
	if utf8.Valid(reply.Output) {
		text := string(reply.Output)
		c.Output = &text
	} else {
		c.Output64 = reply.Output
	}
	return r.finish(c, reply.Output, limits, nil)
}

// refused ends the call of a module that is not accepted. As data it has a code,
// too, and no receipt: nothing ran.
func (r *toolRun) refused(err error) error {
	refusal, ok := errors.AsType[*commandError](err)
	if !ok || refusal.Code == "" {
		return err
	}
	return r.finish(&callReport{Format: 1, Export: r.flags.export, Code: refusal.Code, Message: refusal.What}, nil, host.Limits{}, refusal)
}

// input reads --input. A value that names a file is that file.
func (r *toolRun) input() ([]byte, error) {
	if text := r.flags.input; text != "" && len(text) < 4096 && r.names(text) {
		return r.readFile(text)
	}
	return r.value(r.flags.input)
}
