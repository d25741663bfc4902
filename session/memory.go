package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// NewMemory returns a store that keeps everything in memory.
func NewMemory() *Memory {
	return &Memory{
		sessions: map[Key]*kept{},
		user:     map[Key]map[string]any{},
		app:      map[Key]map[string]any{},
	}
}

// A Memory is a [Store] that forgets when the process ends. It is safe for
// concurrent use.
type Memory struct {
	mu       sync.Mutex
	sessions map[Key]*kept
	user     map[Key]map[string]any // by key without session id
	app      map[Key]map[string]any // by key without user and session id
}

type kept struct {
	state     map[string]any // session scope only
	events    []*Event
	ids       map[string]bool
	updated   time.Time
	calls     []*Call
	callIndex map[CallID]*Call
	questions []Question
}

// Create implements [Store].
func (m *Memory) Create(_ context.Context, key Key, state map[string]any) (*Session, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[key] != nil {
		return nil, fmt.Errorf("session %s: %w", key.ID, ErrExists)
	}
	k := &kept{state: map[string]any{}, ids: map[string]bool{}, callIndex: map[CallID]*Call{}, updated: time.Now()}
	m.sessions[key] = k
	m.apply(key, k, state, true)
	return m.copyOf(key, k), nil
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key Key) (*Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(key)
	if err != nil {
		return nil, err
	}
	return m.copyOf(key, k), nil
}

// List implements [Store].
func (m *Memory) List(_ context.Context, tenant, app, user string) ([]Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []Key
	for key := range m.sessions {
		if key.Tenant == tenant && key.App == app && key.User == user {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	return keys, nil
}

// Delete implements [Store].
func (m *Memory) Delete(_ context.Context, key Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(key); err != nil {
		return err
	}
	delete(m.sessions, key)
	return nil
}

// Append implements [Store].
func (m *Memory) Append(_ context.Context, key Key, event *Event) error {
	if event.Partial {
		return errors.New("event: partial events are not stored")
	}
	if event.ID == "" {
		return errors.New("event: no id")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(key)
	if err != nil {
		return err
	}
	if k.ids[event.ID] {
		return fmt.Errorf("event %s: %w", event.ID, ErrExists)
	}
	k.ids[event.ID] = true
	k.events = append(k.events, event.Clone())
	k.updated = event.Time
	m.apply(key, k, event.Actions.StateDelta, false)
	return nil
}

// BeginCall implements [Store].
func (m *Memory) BeginCall(_ context.Context, call Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(call.Session)
	if err != nil {
		return err
	}
	if _, ok := k.callIndex[call.ID]; ok {
		return fmt.Errorf("call %s of run %s: %w", call.ID.Call, call.ID.Run, ErrExists)
	}
	if call.Approval != "" {
		q, err := k.question(call.Approval)
		if err != nil {
			return err
		}
		if err := q.Spend(); err != nil {
			return err
		}
	}
	call.CallEnd = CallEnd{State: CallIntent}
	k.callIndex[call.ID] = &call
	k.calls = append(k.calls, &call)
	return nil
}

// EndCall implements [Store].
func (m *Memory) EndCall(_ context.Context, key Key, id CallID, end CallEnd) error {
	switch end.State {
	case CallDone, CallDenied, CallUnknown:
	default:
		return fmt.Errorf("call %s: %q is no end", id.Call, end.State)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(key)
	if err != nil {
		return err
	}
	call, ok := k.callIndex[id]
	if !ok {
		return fmt.Errorf("call %s of run %s: %w", id.Call, id.Run, ErrNotFound)
	}
	if call.State != CallIntent {
		return fmt.Errorf("call %s of run %s: %w", id.Call, id.Run, ErrDecided)
	}
	end.Result = slices.Clone(end.Result)
	call.CallEnd = end
	return nil
}

// Calls implements [Store].
func (m *Memory) Calls(_ context.Context, key Key) ([]Call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(key)
	if err != nil {
		return nil, err
	}
	calls := make([]Call, len(k.calls))
	for i, call := range k.calls {
		calls[i] = *call
		calls[i].Result = slices.Clone(call.Result)
	}
	return calls, nil
}

// Ask implements [Store].
func (m *Memory) Ask(_ context.Context, q Question) error {
	if q.ID == "" {
		return errors.New("question: no id")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(q.Session)
	if err != nil {
		return err
	}
	if _, err := k.question(q.ID); err == nil {
		return fmt.Errorf("question %s: %w", q.ID, ErrExists)
	}
	q.State = Pending
	k.questions = append(k.questions, q.clone())
	return nil
}

// Questions implements [Store].
func (m *Memory) Questions(_ context.Context, key Key) ([]Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(key)
	if err != nil {
		return nil, err
	}
	out := make([]Question, len(k.questions))
	for i, q := range k.questions {
		out[i] = q.clone()
	}
	return out, nil
}

// AppQuestions implements [Store].
func (m *Memory) AppQuestions(_ context.Context, tenant, app string, states ...QuestionState) ([]Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Question
	for key, k := range m.sessions {
		if key.Tenant != tenant || key.App != app {
			continue
		}
		for _, q := range k.questions {
			if q.In(states...) {
				out = append(out, q.clone())
			}
		}
	}
	slices.SortFunc(out, CompareAsked)
	return out, nil
}

// Decide implements [Store].
func (m *Memory) Decide(_ context.Context, key Key, id string, d Decision) (Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(key)
	if err != nil {
		return Question{}, err
	}
	q, err := k.question(id)
	if err != nil {
		return Question{}, err
	}
	if err := q.Decide(d); err != nil {
		return Question{}, err
	}
	return q.clone(), nil
}

func (m *Memory) find(key Key) (*kept, error) {
	k := m.sessions[key]
	if k == nil {
		return nil, fmt.Errorf("session %s: %w", key.ID, ErrNotFound)
	}
	return k, nil
}

func (k *kept) question(id string) (*Question, error) {
	for i := range k.questions {
		if k.questions[i].ID == id {
			return &k.questions[i], nil
		}
	}
	return nil, fmt.Errorf("question %s: %w", id, ErrNotFound)
}

func (m *Memory) apply(key Key, k *kept, delta map[string]any, keepTemp bool) {
	for name, value := range delta {
		scope, rest := SplitKey(name)
		var into map[string]any
		switch scope {
		case ScopeTemp:
			if keepTemp {
				k.state[name] = CloneValue(value)
			}
			continue
		case ScopeUser:
			into = shared(m.user, Key{Tenant: key.Tenant, App: key.App, User: key.User})
		case ScopeApp:
			into = shared(m.app, Key{Tenant: key.Tenant, App: key.App})
		default:
			into = k.state
		}
		into[rest] = CloneValue(value)
	}
}

func shared(all map[Key]map[string]any, key Key) map[string]any {
	if all[key] == nil {
		all[key] = map[string]any{}
	}
	return all[key]
}

func (m *Memory) copyOf(key Key, k *kept) *Session {
	s := &Session{Key: key, Updated: k.updated, State: CloneMap(k.state), Events: make([]*Event, len(k.events))}
	for i, e := range k.events {
		s.Events[i] = e.Clone()
	}
	user := m.user[Key{Tenant: key.Tenant, App: key.App, User: key.User}]
	app := m.app[Key{Tenant: key.Tenant, App: key.App}]
	for name, value := range maps.All(user) {
		s.State[string(ScopeUser)+name] = CloneValue(value)
	}
	for name, value := range maps.All(app) {
		s.State[string(ScopeApp)+name] = CloneValue(value)
	}
	return s
}
