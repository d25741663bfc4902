package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// openApart opens an app that keeps nothing of what is tried with it: its sessions, and
// what it audits, are not the app's own.
func (e *env) openApart(ctx context.Context, name string) (*app.Runtime, func(), error) {
	file, err := app.Load(e.path(name))
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "sandboxd-chain")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) } // nothing in it is anybody's
	file.Store = app.Store{Audit: filepath.Join(dir, "audit.log")}
	rt, closeAll, err := e.openApp(ctx, file, app.Options{Logger: e.logger(false)})
	if err != nil {
		remove()
		return nil, nil, err
	}
	return rt, func() {
		closeAll()
		remove()
	}, nil
}

// A chain is the guards of an app, as one that has the phases of all.
type chain struct {
	flow.Guard // never asked
	phases     []abi.Phase
}

func (c chain) Name() string        { return "chain" }
func (c chain) Phases() []abi.Phase { return c.phases }

// A chainReport is what policy run --chain --json prints.
type chainReport struct {
	Format   int             `json:"format"`
	Ruling   abi.Ruling      `json:"ruling"`
	By       string          `json:"by,omitempty"` // who decided; empty if nobody objects
	Verdicts []verdictReport `json:"verdicts"`     // in the order in which they were asked
	Monitors []verdictReport `json:"monitors,omitempty"`
}

// runChain asks all guards of an app: first those that rewrite, each about what the one
// before wrote, then all others. The worst verdict counts.
func (e *env) runChain(ctx context.Context, f *policyRunFlags) error {
	rt, closeAll, err := e.openApart(ctx, f.chain)
	if err != nil {
		return err
	}
	defer closeAll()
	all := chain{}
	for _, phase := range []abi.Phase{abi.PhaseCall, abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseResult} {
		if slices.ContainsFunc(rt.Guards, func(g flow.Guard) bool { return slices.Contains(g.Phases(), phase) }) {
			all.phases = append(all.phases, phase)
		}
	}
	if len(all.phases) == 0 {
		return misuse("guards are listed in "+app.FileName, "%s: the app has no guard", f.chain)
	}
	q, err := e.questionFor(f.question, func(q *authortest.Question) flow.Guard {
		if !q.Says("phase") {
			all.phases = all.phases[:1] // calls, if there is a guard for them
		}
		return all
	})
	if err != nil {
		return err
	}
	if q.Call != nil {
		if err := e.known(rt, &q); err != nil {
			return err
		}
	}
	r := chainReport{Format: 1, Ruling: abi.RulingAllow}
	var worst flow.Judgement
	ask := func(g flow.Guard) flow.Judgement {
		j := flow.Ask(ctx, g, q, authortest.GuardWall)
		r.Verdicts = append(r.Verdicts, reportOf(g.Name(), q, j))
		if severity(j.Verdict.Ruling) > severity(r.Ruling) {
			r.Ruling, r.By, worst = j.Verdict.Ruling, g.Name(), j
		}
		return j
	}
	mutates := func(g flow.Guard) bool { return slices.Contains(g.Mutates(), q.Phase) }
	asked := slices.DeleteFunc(slices.Clone(rt.Guards), func(g flow.Guard) bool { return !slices.Contains(g.Phases(), q.Phase) })
	for _, g := range asked {
		if !mutates(g) {
			continue
		}
		if j := ask(g); j.Verdict.Ruling == abi.RulingRewrite {
			if err := rewrite(&q, j.Verdict.Document); err != nil {
				return fmt.Errorf("guard %s: %w", g.Name(), err)
			}
		}
	}
	for _, g := range asked {
		if !mutates(g) {
			ask(g)
		}
	}
	for _, g := range rt.Monitors {
		if slices.Contains(g.Phases(), q.Phase) {
			r.Monitors = append(r.Monitors, reportOf(g.Name(), q, flow.Ask(ctx, g, q, authortest.GuardWall)))
		}
	}
	if f.json {
		if err := json.NewEncoder(e.stdout).Encode(r); err != nil {
			return err
		}
		return notRun(r.By, worst)
	}
	for _, v := range r.Verdicts {
		fmt.Fprint(e.stdout, e.verdictText(v, f.full))
	}
	for _, v := range r.Monitors {
		fmt.Fprintf(e.stdout, "would  %s", e.verdictText(v, f.full))
	}
	if r.By == "" {
		fmt.Fprintf(e.stdout, "nobody objects: %s\n", plural(len(r.Verdicts), "guard"))
	} else {
		fmt.Fprintf(e.stdout, "%s decides\n", foreign(r.By, true))
	}
	return notRun(r.By, worst)
}

// severity orders rulings by how much of a call they leave; what lets it run is all the same.
func severity(r abi.Ruling) int {
	return max(0, slices.Index([]abi.Ruling{abi.RulingConfirm, abi.RulingDeny}, r)+1)
}

// rewrite puts the document of a verdict in the place of the one that was judged.
func rewrite(q *abi.Question, document json.RawMessage) error {
	doc, err := abi.Canonical(document)
	if err != nil {
		return err
	}
	q.SetDocument(doc)
	return nil
}

// known fills in what the app knows of the tool that is called.
func (e *env) known(rt *app.Runtime, q *abi.Question) error {
	call := *q.Call
	spec := specs(rt)(call.Tool)
	call.Known = spec != nil
	if spec != nil {
		var err error
		if call.DefinitionSHA256, err = spec.Definition(); err != nil {
			return err
		}
		if call.Module = spec.Module; spec.Effects != "" {
			call.Effects = spec.Effects
		}
		if len(q.Grants) == 0 {
			q.Grants = spec.Grants.Lines()
		}
	}
	q.Call = &call
	return nil
}

// learnPins prints the settings that pin the tools that the agents of an app offer their
// models. MCP servers are asked for theirs.
func (e *env) learnPins(ctx context.Context, name string) error {
	rt, closeAll, err := e.openApart(ctx, name)
	if err != nil {
		return err
	}
	defer closeAll()
	offered, err := rt.Runner.Offered(ctx)
	if err != nil {
		return fmt.Errorf("%s: nothing is learned: a tool without a pin would be refused: %w", name, err)
	}
	pins := map[string][]string{} // a tool that agents are told different things of has several
	for _, o := range offered {
		digest, err := o.Spec.Definition()
		if err != nil {
			return err
		}
		if digest = "sha256:" + digest; !slices.Contains(pins[o.Spec.Name], digest) {
			pins[o.Spec.Name] = append(pins[o.Spec.Name], digest)
		}
	}
	const search = "google_search" // unless it is a plugin's
	provided := slices.Contains(rt.File.AllTools(), search) && pins[search] == nil
	if len(pins) == 0 && !provided {
		return misuse("list tools, toolsets or agent_tools in "+app.FileName, "%s: no agent of the app offers a tool", name)
	}
	if provided {
		fmt.Fprintf(e.stderr, "sandboxd: %s: a tool of the model's provider has no definition and cannot be pinned: only unknown: allow leaves it in\n", search)
	}
	if len(pins) == 0 {
		fmt.Fprintln(e.stdout, "pins: {}")
		return nil
	}
	fmt.Fprintln(e.stdout, "pins:")
	for _, tool := range slices.Sorted(maps.Keys(pins)) {
		slices.Sort(pins[tool])
		fmt.Fprintf(e.stdout, "  %s: %s\n", tool, strings.Join(pins[tool], " "))
	}
	return nil
}
