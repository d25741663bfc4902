package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// An attempt is one call of a case and what came of it.
type attempt struct {
	tenant   string
	tool     string
	number   int            // of the call, for inputs that name it
	args     map[string]any // decoded
	tools    []flow.Tool
	guards   []flow.Guard
	entrance entrance
	question string // of a resumed call: the one that was put to a person

	code     abi.Code
	response map[string]any
	text     string // of the error that the model reads
	actions  string // as JSON; {} if there is none
	receipt  host.Receipt
	ran      bool
	took     time.Duration
}

// run makes the call: an agent's model asks for it and nothing else, or what the
// entrance has in its place.
func (s *subject) run(ctx context.Context, a *attempt) error {
	key := session.Key{Tenant: a.tenant, App: "hostile", User: "user", ID: fmt.Sprintf("session-%d", a.number)}
	store := session.NewMemory()
	if _, err := store.Create(ctx, key, nil); err != nil {
		return err
	}
	var ended *flow.CallResult
	finished := func(info flow.CallInfo, c flow.CallResult) {
		if info.Tool == a.tool {
			ended = &c
		}
	}
	runner, err := flow.NewRunner(a.agent(), store, flow.Config{Guards: a.guards, Audit: s.audit, Observer: flow.Observer{Finished: finished}})
	if err != nil {
		return err
	}
	once := func() error {
		start := time.Now()
		defer func() { a.took = time.Since(start) }()
		for ev, err := range a.enter(ctx, runner, key) {
			if err != nil {
				return err
			}
			for _, c := range ev.Calls() {
				if c.Name == "adk_request_confirmation" {
					a.question = c.ID
				}
			}
			for _, r := range ev.Responses() {
				if r.Name != a.tool {
					continue
				}
				actions, err := json.Marshal(ev.Actions)
				if err != nil {
					return err
				}
				a.actions = string(actions)
			}
		}
		return nil
	}
	err = once()
	if err == nil && a.entrance == entranceResume {
		if a.question == "" {
			return errors.New("nobody was asked to approve the call")
		}
		ended = nil
		err = once()
	}
	if err != nil {
		return err
	}
	if ended == nil {
		return fmt.Errorf("the run has no call")
	}
	a.code, a.ran, a.response = ended.Code, ended.Ran, ended.Response
	a.text, _ = ended.Response["error"].(string)
	if receipt, ok := ended.Receipt.(host.Receipt); ok {
		a.receipt = receipt
	}
	return nil
}

// collectDuring runs f, and a collection of this process that begins 30 ms into it.
// It returns how long the collection took.
func collectDuring(f func()) time.Duration {
	var took time.Duration
	var wg sync.WaitGroup
	wg.Add(1)
	time.AfterFunc(30*time.Millisecond, func() {
		defer wg.Done()
		start := time.Now()
		runtime.GC()
		took = time.Since(start)
	})
	f()
	wg.Wait()
	return took
}

// arguments returns the input of a call, as the model would have sent it.
func (c *callSpec) arguments(number int) (map[string]any, error) {
	text := c.Input
	if c.InputText != "" {
		text = []byte(c.InputText)
	}
	if len(text) == 0 {
		text = []byte("{}")
	}
	v, err := decoded(text, number)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	args, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("input: %s is no object", cut(string(text)))
	}
	return args, nil
}

// decoded reads a JSON value of a case and fills in what stands for something
// else: {"$repeat":[s,n]} and "$i".
func decoded(data []byte, number int) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return expand(v, number), nil
}

func expand(v any, number int) any {
	switch v := v.(type) {
	case map[string]any:
		if of, ok := v["$repeat"].([]any); ok && len(v) == 1 && len(of) == 2 {
			s, isText := of[0].(string)
			n, isNumber := of[1].(json.Number)
			if count, err := n.Int64(); isText && isNumber && err == nil && 0 <= count && count*int64(len(s)) <= 64<<20 {
				return strings.Repeat(s, int(count))
			}
		}
		for key, value := range v {
			v[key] = expand(value, number)
		}
	case []any:
		for i := range v {
			v[i] = expand(v[i], number)
		}
	case string:
		if v == "$i" {
			return json.Number(fmt.Sprint(number))
		}
	}
	return v
}
