package authortest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// stream lets a model say the chunks in a run that the guard watches, and compares
// what is shown when each has come. What is shown after the last one, when the
// whole has passed, belongs to it.
func (r *rows) stream(ctx context.Context, res *Result, st step, guard flow.Guard, q abi.Question, chunks []string) {
	if q.Phase != abi.PhaseResponse || len(chunks) == 0 {
		res.problem("question", "", fmt.Sprintf("%d chunks in phase %s: want one or more in phase response", len(chunks), q.Phase))
		return
	}
	said := &chunkModel{chunks: chunks}
	shown := make([]string, len(chunks))
	var last flow.Judgement
	judged := false
	store := session.NewMemory()
	key := session.Key{App: "policy-test", User: "author", ID: "s-1"}
	if _, err := store.Create(ctx, key, nil); err != nil {
		res.problem("run", "", err.Error())
		return
	}
	runner, err := flow.NewRunner(&flow.Agent{Name: "agent", Model: said}, store, flow.Config{
		Guards: []flow.Guard{asker{guard, q}}, Limits: flow.Limits{Guard: GuardWall},
		Observer: flow.Observer{Decided: func(_ flow.CallInfo, d *flow.Decision) {
			if d.Phase == abi.PhaseResponse {
				last, judged = d.Judgements[0], true
			}
		}}})
	if err != nil {
		res.problem("question", "", err.Error())
		return
	}
	for ev, err := range runner.Run(ctx, key, flow.Input{Content: genai.NewContentFromText("go on", genai.RoleUser), Stream: true}) {
		if err != nil {
			res.problem("run", "", err.Error())
			return
		}
		if ev.Partial && ev.Author == "agent" {
			shown[said.at] += ev.Text()
		}
		if ev.ErrorCode == string(abi.PolicyUnavailable) && judged && last.Err == nil {
			res.problem("run", "", ev.ErrorMessage)
			return
		}
	}
	if !judged {
		res.problem("run", "", "the guard was not asked about the whole")
		return
	}
	compare(res, st.want, q, last)
	if st.want.chunks != nil && !slices.Equal(st.want.chunks, shown) {
		res.problem("chunks", fmt.Sprintf("%q", st.want.chunks), fmt.Sprintf("%q", shown))
	}
	r.stored(ctx, res, st.want)
}

// An asker is a guard that is asked by somebody else about what is said here.
type asker struct {
	flow.Guard
	as abi.Question
}

// Phases implements [flow.Guard]: it is asked about responses only.
func (a asker) Phases() []abi.Phase { return []abi.Phase{abi.PhaseResponse} }

// Mutates implements [flow.Guard].
func (a asker) Mutates() []abi.Phase {
	return slices.DeleteFunc(slices.Clone(a.Guard.Mutates()), func(p abi.Phase) bool { return p != abi.PhaseResponse })
}

// Judge implements [flow.Guard].
func (a asker) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	as := *q
	as.Now, as.Tenant, as.App, as.Agent, as.User, as.Session = a.as.Now, a.as.Tenant, a.as.App, a.as.Agent, a.as.User, a.as.Session
	as.Run, as.Step, as.Facts = a.as.Run, a.as.Step, a.as.Facts
	return a.Guard.Judge(ctx, &as)
}

// A chunkModel says its chunks, and then all of them.
type chunkModel struct {
	chunks []string
	at     int // the chunk that came last
}

// Name implements [flow.Model].
func (m *chunkModel) Name() string { return "chunks" }

// Generate implements [flow.Model].
func (m *chunkModel) Generate(context.Context, *flow.Request, bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		for i, text := range m.chunks {
			m.at = i
			if !yield(&session.Response{Content: genai.NewContentFromText(text, genai.RoleModel), Partial: true}, nil) {
				return
			}
		}
		yield(&session.Response{Content: genai.NewContentFromText(strings.Join(m.chunks, ""), genai.RoleModel)}, nil)
	}
}
