package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// A Compaction keeps requests short: parts of the history are summarised, and the
// summary is sent in their place. The events themselves stay. There are two ways,
// and both may be on: a sliding window, after a run, over whole invocations; and
// tail retention, before a model call, over all but the newest events.
//
// Events that belong together (a call and its response, a question and its answer)
// are summarised together or not at all.
type Compaction struct {
	Interval int // sliding window: so many new invocations are summarised at a time; 0: off
	Overlap  int // and so many earlier ones are told again

	TokenThreshold int // tail retention: from a request of so many tokens; 0: off
	Retention      int // so many events stay as they are; at least 1 with a threshold

	Summarizer Summarizer // default: the root agent's model, within a minute
}

// A Summarizer sums up a part of a history. It must be safe for concurrent use and
// must not keep the events. A summary without content means that there is nothing
// to sum up.
type Summarizer interface {
	Summarize(ctx context.Context, events []*session.Event) (Summary, error)
}

// A Summary is what a [Summarizer] gave. Usage may come with an error.
type Summary struct {
	Content *genai.Content
	Usage   *genai.GenerateContentResponseUsageMetadata
}

// ErrCompaction matches the error of a run whose events are all there, but whose
// history could not be summarised afterwards.
var ErrCompaction = errors.New("context compaction failed")

// validate checks a configuration and fills in the summarizer.
func (c *Compaction) validate(root *Agent) (*Compaction, error) {
	if c == nil {
		return nil, nil
	}
	out := *c
	switch {
	case c.Interval < 0 || c.Overlap < 0 || c.TokenThreshold < 0 || c.Retention < 0:
		return nil, errors.New("negative")
	case c.Interval == 0 && c.TokenThreshold == 0:
		return nil, errors.New("neither an interval nor a token threshold")
	case c.Overlap > 0 && c.Interval == 0:
		return nil, errors.New("an overlap without an interval")
	case (c.TokenThreshold > 0) != (c.Retention > 0):
		return nil, errors.New("want a token threshold and a retention, or neither")
	}
	if out.Summarizer == nil {
		if root.Type != ModelAgent || root.Model == nil {
			return nil, fmt.Errorf("no summarizer, and agent %s has no model", root.Name)
		}
		out.Summarizer = &modelSummarizer{root.Model, root.GenerateConfig}
	}
	return &out, nil
}

// A record is a summary at its place in a list of events.
type record struct {
	*session.Compaction
	event *session.Event
	at    int // its place
	from  int // what lies before this place can be covered; earlier than at for a repair
}

// isRecord reports whether an event is a summary and no part of the conversation.
func isRecord(e *session.Event) bool { return e.Actions.Compaction != nil }

// recordsOf returns the summaries that count in a list of events, in order. A later
// one with the same span and text repairs an earlier one; one that says all that an
// earlier one said makes it redundant.
func recordsOf(events []*session.Event) []*record {
	var all []*record
	for i, e := range events {
		if c := e.Actions.Compaction; c == nil || c.Content == nil {
			continue
		}
		r := &record{e.Actions.Compaction.Clone(), e, i, i}
		for j, old := range all {
			if old.sameSpan(r) && proseText(old.Content) != "" && proseText(old.Content) == proseText(r.Content) {
				r.from = min(r.from, old.from)
				r.Excluded = append(r.Excluded, old.Excluded...)
				all = slices.Delete(all, j, j+1)
				break
			}
		}
		all = append(all, r)
	}
	return slices.DeleteFunc(slices.Clone(all), func(r *record) bool {
		return slices.ContainsFunc(all, func(later *record) bool { return later.at > r.at && later.subsumes(r) })
	})
}

func (r *record) sameSpan(s *record) bool { return r.Start.Equal(s.Start) && r.End.Equal(s.End) }

// subsumes reports whether a later record makes an earlier one redundant.
func (r *record) subsumes(old *record) bool {
	if r.sameSpan(old) {
		return true
	}
	if old.Start.Before(r.Start) || old.End.After(r.End) {
		return false
	}
	return !slices.ContainsFunc(r.Excluded, func(x session.EventRef) bool {
		return !x.Time.Before(old.Start) && !x.Time.After(old.End) && !old.excludes(x)
	})
}

func (r *record) excludes(x session.EventRef) bool {
	return slices.ContainsFunc(r.Excluded, func(y session.EventRef) bool {
		return y.InvocationID == x.InvocationID && micro(y.Time).Equal(micro(x.Time))
	})
}

// covers reports whether an event at a place is summed up by the record.
func (r *record) covers(e *session.Event, at int) bool {
	return at < r.from && inSpan(e, r.Compaction) && !r.excludes(refOf(e))
}

func inSpan(e *session.Event, c *session.Compaction) bool {
	return !e.Time.Before(c.Start) && !e.Time.After(c.End)
}

func refOf(e *session.Event) session.EventRef {
	return session.EventRef{InvocationID: e.InvocationID, Time: micro(e.Time)}
}

func micro(t time.Time) time.Time { return t.Truncate(time.Microsecond) }

// coveredIn reports for each event whether a summary stands for it.
func coveredIn(events []*session.Event, records []*record) []bool {
	out := make([]bool, len(events))
	for i, e := range events {
		out[i] = !isRecord(e) && slices.ContainsFunc(records, func(r *record) bool { return r.covers(e, i) })
	}
	return out
}

// prose returns what a summary may hold of a content: text that is no thought.
func prose(c *genai.Content) *genai.Content {
	out := &genai.Content{Role: genai.RoleModel}
	for _, p := range parts(c) {
		if p != nil && p.Text != "" && !p.Thought && p.FunctionCall == nil && p.FunctionResponse == nil {
			out.Parts = append(out.Parts, genai.NewPartFromText(p.Text))
		}
	}
	if len(out.Parts) == 0 {
		return nil
	}
	return out
}

func proseText(c *genai.Content) string {
	text := ""
	for _, p := range parts(c) {
		if p != nil && !p.Thought {
			text += p.Text
		}
	}
	return text
}

// applyRecords puts summaries in the place of what they stand for. A response that
// came after its long-running call was summed up gets the call back.
func applyRecords(in []*view) []*view {
	events := make([]*session.Event, len(in))
	for i, v := range in {
		events[i] = v.event
	}
	records := recordsOf(events)
	covered := coveredIn(events, records)
	at := map[int][]*view{} // summaries by the place where they are shown
	for _, r := range records {
		place := r.at
		for i, e := range events {
			if covered[i] && r.covers(e, i) {
				place = i
				break
			}
		}
		at[place] = append(at[place], &view{event: r.event, content: r.Content})
	}
	var out []*view
	for i, v := range in {
		out = append(out, at[i]...)
		if !covered[i] && !isRecord(v.event) {
			out = append(out, v)
		}
	}
	return restoreCalls(out, in)
}

// restoreCalls puts long-running calls that were summed up before responses that
// were not, with the newest responses to the other calls of the same event.
func restoreCalls(out, in []*view) []*view {
	called, answered := map[string]bool{}, map[string]bool{}
	for _, v := range out {
		for _, c := range v.calls() {
			called[c.ID] = true
		}
		for _, r := range v.responses() {
			answered[r.ID] = true
		}
	}
	for i := 0; i < len(out); i++ {
		for _, r := range out[i].responses() {
			if called[r.ID] {
				continue
			}
			call := callOf(in, r.ID)
			if call == nil || !slices.Contains(call.event.LongRunningToolIDs, r.ID) {
				continue
			}
			back := []*view{call}
			for _, c := range call.calls() {
				called[c.ID] = true
				if answered[c.ID] {
					continue
				}
				if v := newestAnswer(in, c.ID); v != nil && !slices.Contains(back, v) {
					back = append(back, v)
				}
			}
			out = slices.Insert(out, i, back...)
			i += len(back)
			break
		}
	}
	return out
}

func callOf(in []*view, id string) *view {
	for _, v := range in {
		if slices.ContainsFunc(v.calls(), func(c *genai.FunctionCall) bool { return c.ID == id && id != "" }) {
			return v
		}
	}
	return nil
}

func newestAnswer(in []*view, id string) *view {
	for _, v := range slices.Backward(in) {
		if slices.ContainsFunc(v.responses(), func(r *genai.FunctionResponse) bool { return r.ID == id }) {
			return v
		}
	}
	return nil
}
