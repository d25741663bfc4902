package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/internal/regobuild"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A ruleReport is what came of one rule of a policy in Rego.
type ruleReport struct {
	Rule    string `json:"rule"` // what stands before its body
	File    string `json:"file"`
	Line    int    `json:"line"`
	Outcome string `json:"outcome"` // fired, failed, or unused: nothing needed it
	// Of a rule that failed: the first expression that was false or had no value.
	Expression     string `json:"expression,omitempty"`
	ExpressionLine int    `json:"expression_line,omitempty"`
}

// maxMarks bounds what is kept track of in one judgement.
const maxMarks = 1 << 20

// explainRego asks a copy of a policy that says how far its rules come, and returns that. The verdict is that
// of the policy itself. There is nothing, but a line that says so, for a module without its source.
func (e *env) explainRego(ctx context.Context, modules app.Modules, g *guestFile, module *host.Module, f guardFlags, q abi.Question) ([]ruleReport, error) {
	if !g.made {
		fmt.Fprintf(e.stderr, "%s was compiled from Rego, and its rules are in its source: name the folder to have them explained\n", foreign(g.name, false))
		return nil, nil
	}
	probed, err := regobuild.Probe(ctx, e.path(g.name))
	if err != nil {
		return nil, moduleError(g.name, g.wasm, err)
	}
	wasm, err := modules.Pack(ctx, probed.Wasm, module.Manifest())
	if err != nil {
		return nil, moduleError(g.name, g.wasm, err)
	}
	watched, err := modules.Load(ctx, g.short(), wasm)
	if err != nil {
		return nil, moduleError(g.name, wasm, err)
	}
	now, err := time.Parse(time.RFC3339Nano, q.Now)
	if err != nil {
		return nil, err
	}
	q.Guard = guardOf(module.Manifest(), f.guard).Name
	if q.Settings, err = e.settingsOf(f.settings); err != nil {
		return nil, err
	}
	input, err := abi.Marshal(&q)
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	_, err = watched.Call(ctx, &host.Call{
		Kind: abi.KindGuard, Export: abi.ExportCall, Input: input, Now: now, Seed: []byte(abi.Digest(input)),
		Limits:      host.Limits{Wall: authortest.GuardWall, HostCalls: maxMarks, Fuel: 1 << 40},
		TraceBodies: true,
		Trace: func(hc host.HostCall) {
			if n, ok := probed.Mark(hc.Sent); ok {
				seen[n] = true
			}
		},
	})
	if err != nil {
		fmt.Fprintf(e.stderr, "the rules were not followed to the end: %s\n", foreign(err.Error(), false))
	}
	var all []ruleReport
	for _, o := range probed.Outcomes(seen) {
		r := ruleReport{Rule: o.Head, File: o.File, Line: o.Line, Outcome: "unused"}
		switch {
		case o.Fired:
			r.Outcome = "fired"
		case o.Failed != nil:
			r.Outcome, r.Expression, r.ExpressionLine = "failed", o.Failed.Text, o.Failed.Line
		}
		all = append(all, r)
	}
	return all, nil
}

// rulesText says what came of rules: first those that fired, then the others.
func (e *env) rulesText(rules []ruleReport, full bool) string {
	var b strings.Builder
	p := e.palette(e.stdout)
	for _, outcome := range []string{"fired", "failed", "unused"} {
		for _, r := range rules {
			if r.Outcome != outcome {
				continue
			}
			word := fmt.Sprintf("%-6s", outcome)
			if outcome == "fired" {
				word = p.green(word)
			}
			fmt.Fprintf(&b, "  %s %s   %s:%d", word, foreign(r.Rule, full), foreign(filepath.ToSlash(r.File), true), cmp.Or(r.ExpressionLine, r.Line))
			if r.Expression != "" {
				fmt.Fprintf(&b, "   %s", foreign(r.Expression, full))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
