package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/session"
)

// maxCompactionFailures is how often tail retention is tried for an agent in a run.
const maxCompactionFailures = 3

// A gate keeps tail retention from summing up again and again in one run.
type gate struct {
	closed   bool // there is a summary, and requests have not become short since
	failures int
}

// errRace means that the history changed while it was being summed up, so that the
// summary is thrown away.
var errRace = errors.New("the session changed meanwhile")

// errDeclined means that there was nothing to sum up.
var errDeclined = errors.New("the summarizer found nothing to sum up")

// compactTail sums up all but the newest events if the next request would be too
// long. It never fails the run: the request is then sent as it is.
func (s *step) compactTail(ctx context.Context) {
	c := s.cfg.Compaction
	if c == nil || c.TokenThreshold == 0 || ctx.Err() != nil {
		return
	}
	known := s.events()
	tokens := s.promptTokens(known)
	if tokens == 0 {
		return
	}
	g := s.gate()
	if tokens < c.TokenThreshold {
		g.closed = false
		return
	}
	if g.closed || g.failures >= maxCompactionFailures {
		return
	}
	w := tailWindow(known, Placement{s.branch, s.scope}, s.sees, s.id, c.Retention)
	if len(w) == 0 {
		return
	}
	err := s.compact(ctx, w, known, nil)
	switch {
	case err == nil:
		g.closed = true
		s.mu.Lock()
		s.compacted = true
		s.mu.Unlock()
	case ctx.Err() != nil || errors.Is(err, errRace): // thrown away, no failure
	default:
		g.failures++
		s.cfg.Logger.Warn("history not summarised; the request is sent as it is", "agent", s.agent.Name, "err", err)
	}
}

// gate returns the gate of an agent at a place. One agent works at one place at a
// time, so its gate belongs to one goroutine.
func (s *step) gate() *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.agent.Name + "\n" + s.branch + "\n" + s.scope
	if s.gates[key] == nil {
		s.gates[key] = &gate{}
	}
	return s.gates[key]
}

// promptTokens is how large the next request will be: what the model counted last,
// with an estimate of what came after, or an estimate of everything.
func (f *agentRun) promptTokens(events []*session.Event) int {
	for i, e := range slices.Backward(events) {
		if isRecord(e) || !f.sees(e) || e.Usage == nil || e.Usage.PromptTokenCount <= 0 {
			continue
		}
		return int(e.Usage.PromptTokenCount) + f.estimate(events[i+1:], events)
	}
	return f.estimate(events, events)
}

// estimate counts four characters as a token.
func (f *agentRun) estimate(events, all []*session.Event) int {
	contents, err := f.assemble(events, all)
	if err != nil {
		return 0
	}
	n := 0
	for _, c := range contents {
		for _, p := range c.Parts {
			n += utf8.RuneCountInString(p.Text)
			if p.FunctionCall != nil {
				n += utf8.RuneCountInString(p.FunctionCall.Name) + jsonRunes(p.FunctionCall.Args)
			}
			if p.FunctionResponse != nil {
				n += utf8.RuneCountInString(p.FunctionResponse.Name) + jsonRunes(p.FunctionResponse.Response)
			}
		}
	}
	return n / 4
}

func jsonRunes(v map[string]any) int {
	data, err := json.Marshal(v)
	if err != nil || len(v) == 0 {
		return 0
	}
	return utf8.RuneCount(data)
}

// compactAfter sums up finished invocations after a run that went well.
func (r *run) compactAfter(ctx context.Context) (err error) {
	c := r.cfg.Compaction
	r.mu.Lock()
	done := r.compacted
	r.mu.Unlock()
	if c == nil || c.Interval == 0 || done || ctx.Err() != nil {
		return nil
	}
	_, err = contain("compaction", func() (struct{}, error) {
		stored, err := r.store.Get(ctx, r.key)
		if err != nil {
			return struct{}{}, err
		}
		w := slidingWindow(stored.Events, c.Interval, c.Overlap)
		if len(w) == 0 {
			return struct{}{}, nil
		}
		return struct{}{}, r.compact(ctx, w, stored.Events, r.onEvent)
	})
	if err == nil || errors.Is(err, errRace) || errors.Is(err, errDeclined) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%w: post-invocation: sliding-window summarization failed: %w", ErrCompaction, err)
}

// compact sums up a window of the events that are known and stores the record. hook,
// if there is one, sees the record first.
func (r *run) compact(ctx context.Context, w window, known []*session.Event, hook func(context.Context, *session.Event) (*session.Event, error)) error {
	summarizer := r.cfg.Compaction.Summarizer
	if own, ok := summarizer.(*modelSummarizer); ok {
		summarizer = &modelSummarizer{judgedModel{own.model, r, r.tree.root.Name}, own.config}
	}
	summary, err := contain("summarizer", func() (Summary, error) { return summarizer.Summarize(ctx, w.input()) })
	if err != nil {
		return err
	}
	if summary.Content == nil {
		return errDeclined
	}
	content := prose(summary.Content)
	if content == nil {
		return errors.New("the summary has no text")
	}
	ev := &session.Event{ID: newID(), Time: r.cfg.Now(), InvocationID: "e-" + newID(), Author: userAuthor, Branch: w[0].Branch, IsolationScope: w[0].IsolationScope}
	ev.Usage = summary.Usage
	ev.Actions.Compaction = w.record(content, known)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.unchanged(ctx, ev.Actions.Compaction, known); err != nil {
		return err
	}
	if hook != nil {
		if ev, err = hook(ctx, ev); err != nil {
			return err
		}
		if err := r.unchanged(ctx, ev.Actions.Compaction, known); err != nil {
			return err
		}
	}
	if err := r.append(ctx, ev); err != nil {
		return err
	}
	r.repair(ctx, ev, known)
	return nil
}

// unchanged reports an error if the session has new events in the span of a record,
// or a new record that overlaps it.
func (r *run) unchanged(ctx context.Context, c *session.Compaction, known []*session.Event) error {
	stored, err := r.store.Get(ctx, r.key)
	if err != nil {
		return err
	}
	for _, e := range newIn(stored.Events, known) {
		if other := e.Actions.Compaction; other != nil {
			if !other.Start.After(c.End) && !other.End.Before(c.Start) {
				return errRace
			}
		} else if inSpan(e, c) {
			return errRace
		}
	}
	return nil
}

// newIn returns the stored events that are not known.
func newIn(stored, known []*session.Event) []*session.Event {
	seen := make(map[string]bool, len(known))
	for _, e := range known {
		seen[e.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(stored), func(e *session.Event) bool { return seen[e.ID] })
}

// repair excludes events that were stored in the span of a record while it was being
// stored, by a second record. Without it they would be lost to the model.
func (r *run) repair(ctx context.Context, ev *session.Event, known []*session.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	stored, err := r.store.Get(ctx, r.key)
	if err != nil {
		r.cfg.Logger.Error("summary not checked", "err", err)
		return
	}
	again := ev.Clone()
	c := again.Actions.Compaction
	late := false
	for _, e := range newIn(stored.Events, known) {
		if !isRecord(e) && inSpan(e, c) && !slices.Contains(c.Excluded, refOf(e)) {
			c.Excluded = append(c.Excluded, refOf(e))
			late = true
		}
	}
	if !late {
		return
	}
	again.ID, again.Time = newID(), ev.Time.Add(time.Microsecond)
	if err := r.append(ctx, again); err != nil {
		r.cfg.Logger.Error("summary not repaired", "err", err)
	}
}
