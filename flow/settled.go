package flow

import (
	"maps"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// settled is what the model is sent of the beginning of a history, kept from step
// to step so that a step costs what is new and not what is old. It ends before an
// event with calls, and what follows must be apart from it: no id in common, and
// no summary that could cover it. Then the rules of contents.go make the same of
// the two parts as of the whole, and when it is not so all is done again.
type settled struct {
	events   int             // how many are settled
	last     *session.Event  // the last of them
	rewrites int             // of the run, when they were looked at
	ids      map[string]bool // of calls and responses in them
	contents []*genai.Content
}

// startsWith reports whether the settled part is still how events begin. A history
// grows at its end, and only showRewritten changes what is in it.
func (s *settled) startsWith(events []*session.Event, rewrites int) bool {
	n := s.events
	return n > 0 && n <= len(events) && s.rewrites == rewrites && events[n-1] == s.last
}

// split returns the contents of the settled part of events, the events that follow
// it, and the events that hold their calls. It settles what has become old since.
func (f *agentRun) split(events, all []*session.Event, rewrites int) (old []*genai.Content, rest, calls []*session.Event) {
	s := &f.settled
	if s.startsWith(events, rewrites) && f.apart(s.ids, events[s.events:]) {
		rest = events[s.events:]
		calls = rest
	} else {
		*s = settled{ids: map[string]bool{}, rewrites: rewrites}
		rest, calls = events, all
	}
	n := f.lastCalling(rest)
	if n <= 0 {
		return s.contents, rest, calls
	}
	views := f.visible(rest[:n])
	ids := map[string]bool{}
	for _, v := range views {
		for _, c := range v.calls() {
			ids[c.ID] = true
		}
		for _, r := range v.responses() {
			ids[r.ID] = true
		}
	}
	if !f.apart(ids, rest[n:]) {
		return s.contents, rest, calls
	}
	maps.Copy(s.ids, ids)
	s.contents = append(s.contents, cleaned(pairUp(f.prepared(views, calls), false))...)
	s.events += n
	s.last = rest[n-1]
	return s.contents, rest[n:], rest[n:]
}

// lastCalling returns the index of the last event that shows calls to the model, or -1.
func (f *agentRun) lastCalling(events []*session.Event) int {
	for i, e := range slices.Backward(events) {
		if len(e.Calls()) == 0 {
			continue
		}
		if v := f.visible(events[i : i+1]); len(v) > 0 && len(v[0].calls()) > 0 {
			return i
		}
	}
	return -1
}

// apart reports whether events have nothing to do with earlier ones that have these
// ids: they neither call nor answer any of them, no summary is among them, and
// every response that the model sees follows its call.
func (f *agentRun) apart(ids map[string]bool, events []*session.Event) bool {
	called := map[string]bool{}
	for i, e := range events {
		if isRecord(e) || slices.ContainsFunc(e.Calls(), func(c *genai.FunctionCall) bool { return ids[c.ID] }) {
			return false
		}
		for _, v := range f.visible(events[i : i+1]) {
			if slices.ContainsFunc(v.responses(), func(r *genai.FunctionResponse) bool { return !called[r.ID] }) {
				return false
			}
			for _, c := range v.calls() {
				called[c.ID] = true
			}
		}
	}
	return true
}
