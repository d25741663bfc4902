package flow

//adk:errors what begins "failed to" is the text that the vectors pin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sandboxd/sandboxd/session"
)

// Scopes say which tasks of a history are open. A task works in the scope that is
// the id of its call, and is over when that call has its response. A response that
// is older than what happened in the scope since is no end of the task: it said
// that a person is asked about the call, and the person agreed.
type scopes struct {
	within   map[string]string // where a call was made, by its id; missing: outside of all scopes
	answered map[string]bool   // calls with a response
	finished map[string]bool   // scopes whose newest event is a finish_task that was taken
}

func scopesOf(events []*session.Event) *scopes {
	s := &scopes{within: map[string]string{}, answered: map[string]bool{}, finished: map[string]bool{}}
	for _, ev := range events {
		if isRecord(ev) {
			continue
		}
		if ev.IsolationScope != "" {
			s.finished[ev.IsolationScope] = finishes(ev)
		}
		for scope := ev.IsolationScope; scope != ""; scope = s.within[scope] {
			delete(s.answered, scope)
		}
		for _, call := range ev.Calls() {
			s.put(call.ID, ev.IsolationScope)
		}
		for _, r := range ev.Responses() {
			if ev.IsolationScope == s.within[r.ID] {
				s.answered[r.ID] = true
			}
		}
	}
	return s
}

// put says where a call was made, the first time it was. No call comes to lie
// within itself, whatever ids a history has.
func (s *scopes) put(id, scope string) {
	if _, known := s.within[id]; known || scope == "" {
		return
	}
	for above := scope; above != ""; above = s.within[above] {
		if above == id {
			return
		}
	}
	s.within[id] = scope
}

// open reports whether a task works in a scope: neither it nor one that gave it
// the task is over.
func (s *scopes) open(scope string) bool {
	for ; scope != ""; scope = s.within[scope] {
		if s.answered[scope] || s.finished[scope] {
			return false
		}
	}
	return true
}

// openScope returns the scope of the newest event that has one in which a task is
// open, or nothing: a message belongs to the task that waits for it.
func (r *run) openScope() string {
	events := r.events()
	s := scopesOf(events)
	for _, e := range slices.Backward(events) {
		if e.IsolationScope != "" && !isRecord(e) && s.open(e.IsolationScope) {
			return e.IsolationScope
		}
	}
	return ""
}

// lies reports whether a scope is another one or lies in it.
func (s *scopes) lies(scope, in string) bool {
	for ; scope != ""; scope = s.within[scope] {
		if scope == in {
			return true
		}
	}
	return false
}

// handBack gives the agent what the user said to tasks that came to their end without
// a word about it, such as one that a guard denied when it was to go on: nobody else
// will ever see that. The tasks are those with a response in the history since the event
// at from. The messages are stored once more, behind the response, in this agent's scope.
func (s *step) handBack(ctx context.Context, from int) error {
	events := s.events()
	var over []string
	for _, ev := range events[from:] {
		for _, r := range ev.Responses() {
			if _, asked := ev.Actions.RequestedConfirmations[r.ID]; !asked && ev.IsolationScope == s.scope {
				over = append(over, r.ID)
			}
		}
	}
	if len(over) == 0 {
		return nil
	}
	sc := scopesOf(events)
	unheard := map[string][]*session.Event{} // by scope
	for _, ev := range events {
		switch scope := ev.IsolationScope; {
		case isRecord(ev) || !slices.ContainsFunc(over, func(id string) bool { return sc.lies(scope, id) }):
		case ev.Author == userAuthor && len(ev.Responses()) == 0:
			unheard[scope] = append(unheard[scope], ev)
		case ev.Author != userAuthor: // who speaks has heard what was said there, or got it back from further in
			maps.DeleteFunc(unheard, func(within string, _ []*session.Event) bool { return sc.lies(within, scope) })
		}
	}
	for _, ev := range events {
		if !slices.Contains(unheard[ev.IsolationScope], ev) {
			continue
		}
		again := s.newEvent(userAuthor)
		again.Content, again.IsolationScope = session.CloneContent(ev.Content), s.scope
		if err := s.append(ctx, again); err != nil {
			return fmt.Errorf("failed to append event to sessionService: %w", err)
		}
		s.mu.Lock()
		s.handed[again.ID] = true
		s.mu.Unlock()
	}
	return nil
}

// newestUserEvent is the newest event in which the user said something, not what was
// said before and handed back.
func (s *step) newestUserEvent() *session.Event {
	events := s.events()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(events) {
		if e.Author == userAuthor && !isRecord(e) && !s.handed[e.ID] {
			return e
		}
	}
	return nil
}

// finishes reports whether an event holds a finish_task that was taken.
func finishes(ev *session.Event) bool {
	for _, r := range ev.Responses() {
		if _, failed := r.Response["error"]; r.Name == finishTask && !failed {
			return true
		}
	}
	return false
}
