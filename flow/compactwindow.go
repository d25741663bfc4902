package flow

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// A window is what is summed up: events of one branch and scope, in order, which may
// begin with an earlier summary.
type window []*session.Event

// slidingWindow returns what a sliding window sums up of a session, nil if there are
// not enough new invocations. An invocation is new as long as one of its events is
// not summed up.
func slidingWindow(events []*session.Event, interval, overlap int) window {
	covered := coveredIn(events, recordsOf(events))
	position := map[string]int{} // of invocations, by first appearance
	fresh := map[int]bool{}
	for i, e := range events {
		if isRecord(e) || e.InvocationID == "" {
			continue
		}
		if _, seen := position[e.InvocationID]; !seen {
			position[e.InvocationID] = len(position)
		}
		if !covered[i] {
			fresh[position[e.InvocationID]] = true
		}
	}
	if interval == 0 || len(fresh) < interval {
		return nil
	}
	first, end, left := -1, 0, interval
	for p := range len(position) {
		if fresh[p] && left > 0 {
			if first < 0 {
				first = p
			}
			end = p
			left--
		}
	}
	start := max(0, first-overlap)
	stale := func(i int) bool {
		p, ok := position[events[i].InvocationID]
		return covered[i] && ok && p >= first
	}
	from, to := -1, -1
	for i, e := range events {
		p, ok := position[e.InvocationID]
		if !ok || isRecord(e) || stale(i) {
			continue
		}
		if p >= start && from < 0 {
			from = i
		}
		if p <= end {
			to = i
		}
	}
	var w window
	for i := from; i <= to && from >= 0; i++ {
		if !isRecord(events[i]) && !stale(i) {
			w = append(w, events[i])
		}
	}
	return w.oneBranch().closed()
}

// tailWindow returns what tail retention sums up for an agent: all but the newest
// events that it sees, nil if that is nothing.
func tailWindow(events []*session.Event, at Placement, sees func(*session.Event) bool, invocation string, retention int) window {
	records := recordsOf(events)
	covered := coveredIn(events, records)
	head := slices.IndexFunc(events, func(e *session.Event) bool { return !isRecord(e) && e.InvocationID == invocation })
	var candidates window
	for i, e := range events {
		if !isRecord(e) && !covered[i] && i != head && sees(e) {
			candidates = append(candidates, e)
		}
	}
	cut := len(candidates) - retention
	for cut > 0 && cut < len(candidates) && !candidates[cut-1].Time.Before(candidates[cut].Time) {
		cut--
	}
	if cut <= 0 {
		return nil
	}
	w := candidates[:cut].oneBranch().closed()
	if len(w) == 0 {
		return nil
	}
	for _, r := range slices.Backward(records) {
		if r.event.Branch == at.Branch && r.event.IsolationScope == at.IsolationScope {
			if r.event.Branch == w[0].Branch && r.event.IsolationScope == w[0].IsolationScope {
				w = append(window{r.seed()}, w...)
			}
			break
		}
	}
	return w
}

// seed is a summary as the beginning of what is summed up next.
func (r *record) seed() *session.Event {
	e := &session.Event{ID: r.event.ID, InvocationID: r.event.InvocationID, Author: "model", Time: r.Start,
		Branch: r.event.Branch, IsolationScope: r.event.IsolationScope}
	e.Content = r.Content
	e.Actions.Compaction = r.Compaction
	return e
}

// oneBranch returns the beginning that is of one branch and scope.
func (w window) oneBranch() window {
	for i, e := range w {
		if e.Branch != w[0].Branch || e.IsolationScope != w[0].IsolationScope {
			return w[:i]
		}
	}
	return w
}

// closed returns the longest beginning that leaves no call without its response. If
// there is none, because something at the beginning is still open, that is skipped.
func (w window) closed() window {
	if n := w.closedPrefix(); n > 0 {
		return w[:n]
	}
	open := openCalls{}
	for start := 1; start < len(w); start++ {
		before := w[start-1]
		open.add(before)
		if len(before.Calls()) == 0 && len(before.Responses()) == 0 && len(before.Actions.RequestedConfirmations) == 0 {
			continue
		}
		rest := w[start:]
		rest = rest[:rest.closedPrefix()]
		if len(rest) > 0 && !open.answeredIn(rest) {
			return rest
		}
	}
	return nil
}

// closedPrefix returns how many events can be cut off so that nothing is open at the
// cut, and no two events of one time are torn apart.
func (w window) closedPrefix() int {
	best := 0
	open := openCalls{}
	for i, e := range w {
		open.add(e)
		if len(open) == 0 && (i == len(w)-1 || e.Time.Before(w[i+1].Time)) {
			best = i + 1
		}
	}
	return best
}

// openCalls are ids of calls and questions that have no response yet.
type openCalls map[string]bool

func (o openCalls) add(e *session.Event) {
	for _, r := range e.Responses() {
		delete(o, "id "+r.ID)
	}
	for i, c := range e.Calls() {
		key := "id " + c.ID
		if c.ID == "" {
			key = fmt.Sprintf("none %s %d", e.ID, i) // nothing can close it
		}
		o[key] = true
	}
	for id := range e.Actions.RequestedConfirmations {
		o["id "+id] = true
	}
}

func (o openCalls) answeredIn(w window) bool {
	for _, e := range w {
		for _, r := range e.Responses() {
			if o["id "+r.ID] {
				return true
			}
		}
	}
	return false
}

// span is the time from the earliest to the latest event of a window.
func (w window) span() (start, end time.Time) {
	start, end = w[0].Time, w[0].Time
	for _, e := range w {
		if e.Time.Before(start) {
			start = e.Time
		}
		if e.Time.After(end) {
			end = e.Time
		}
		if c := e.Actions.Compaction; c != nil && c.End.After(end) {
			end = c.End
		}
	}
	return start, end
}

// record makes the record of a summary of the window. What else lies in its span,
// and is in no summary that the window holds, is excluded.
func (w window) record(content *genai.Content, events []*session.Event) *session.Compaction {
	start, end := w.span()
	c := &session.Compaction{Start: start, End: end, Content: content}
	var held []*record
	for _, r := range recordsOf(events) {
		if slices.ContainsFunc(w, func(e *session.Event) bool { return isRecord(e) && e.ID == r.event.ID }) {
			held = append(held, r)
		}
	}
	for i, e := range events {
		if isRecord(e) || !inSpan(e, c) || slices.ContainsFunc(w, func(x *session.Event) bool { return x.ID == e.ID }) ||
			slices.ContainsFunc(held, func(r *record) bool { return r.covers(e, i) }) || slices.Contains(c.Excluded, refOf(e)) {
			continue
		}
		c.Excluded = append(c.Excluded, refOf(e))
	}
	return c
}

// input is what a summarizer is shown of the window.
func (w window) input() []*session.Event {
	var out []*session.Event
	for _, e := range w {
		c := &session.Event{ID: e.ID, Time: e.Time, InvocationID: e.InvocationID, Branch: e.Branch, IsolationScope: e.IsolationScope, Author: e.Author}
		c.Content = session.CloneContent(e.Content)
		if r := e.Actions.Compaction; r != nil {
			c.Actions.Compaction = &session.Compaction{Start: r.Start, End: r.End}
		}
		out = append(out, c)
	}
	return out
}
