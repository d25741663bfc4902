package flow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// killVariable makes the test binary a process that approves a call, goes on with
// it, and kills itself on the way: the folder of its files, then the place.
const killVariable = "FLOW_KILLED_CHILD"

// A killer ends its process at a place, as kill -9 does.
type killer string

func (k killer) at(place string) {
	if string(k) != place {
		return
	}
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // until the kernel has seen to it
}

// A killedStore is where a process may be killed: before and after each write.
type killedStore struct {
	session.Store
	killer
}

func (s killedStore) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	s.at("before the decision")
	defer s.at("decided")
	return s.Store.Decide(ctx, key, id, d)
}

func (s killedStore) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	place := "message"
	switch {
	case ev.Author != "user" && len(ev.Responses()) > 0:
		place = "result event"
	case ev.Author != "user":
		place = "answer"
	}
	s.at("before the " + place)
	defer s.at("after the " + place)
	return s.Store.Append(ctx, key, ev)
}

func (s killedStore) BeginCall(ctx context.Context, c session.Call) error {
	s.at("before the intent")
	defer s.at("after the intent")
	return s.Store.BeginCall(ctx, c)
}

func (s killedStore) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	s.at("before the end")
	defer s.at("after the end")
	return s.Store.EndCall(ctx, key, id, end)
}

var killTime = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// killWorld is the app of a process: its store and its audit log are files, and so
// is the effect of its tool.
func killWorld(dir string, k killer, now time.Time, model *flowtest.Model) (*flow.Runner, *sqlite.Store, func() error, error) {
	store, err := sqlite.Open(filepath.Join(dir, "sessions.db"))
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := audit.Open(filepath.Join(dir, "audit.log"))
	if err != nil {
		return nil, nil, nil, err
	}
	pay := handler("pay", func(*flow.ToolContext, json.RawMessage) (string, error) {
		k.at("before the effect")
		f, err := os.OpenFile(filepath.Join(dir, "effect"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString("paid\n")
		err = errors.Join(err, f.Sync(), f.Close())
		k.at("after the effect")
		return okResponse, err
	})
	pay.Describe.Confirm = true
	r, err := flow.NewRunner(&flow.Agent{Name: "agent", Model: model, Tools: []flow.Tool{pay}}, killedStore{store, k},
		flow.Config{Audit: log, Now: func() time.Time { return now }})
	return r, store, func() error { return errors.Join(store.Close(), log.Close()) }, err
}

// killedChild decides about the only question there is, goes on, and is killed.
func killedChild(dir string) {
	dir, place, _ := strings.Cut(dir, "\n")
	err := func() error {
		r, store, _, err := killWorld(dir, killer(place), killTime, &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("done")}})
		if err != nil {
			return err
		}
		qs, err := store.Questions(context.Background(), home)
		if err != nil {
			return err
		}
		d := session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: qs[0].ArgsSHA256}
		if _, err := r.Decide(context.Background(), home, qs[0].ID, d); err != nil {
			return err
		}
		for _, err := range r.Resume(context.Background(), home, flow.Input{}) {
			if err != nil {
				return err
			}
		}
		return errors.New("nothing killed it")
	}()
	fmt.Println("child:", err)
	os.Exit(1)
}

// A process that is killed anywhere between an approval and the end of its run
// leaves exactly one execution, or an outcome that is said to be unknown.
func TestKilledAfterApproval(t *testing.T) {
	const known, unknown, again, nothing = "one execution", "outcome_unknown", "decided again", "nothing left to do"
	for place, want := range map[string]string{
		"before the decision":     again,
		"decided":                 known,
		"before the message":      known,
		"after the message":       known,
		"before the intent":       known,
		"after the intent":        unknown,
		"before the effect":       unknown,
		"after the effect":        unknown,
		"before the end":          unknown,
		"after the end":           known,
		"before the result event": known,
		"after the result event":  nothing,
		"before the answer":       nothing,
		"after the answer":        nothing,
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r, store, closeAll, err := killWorld(dir, "", killTime, &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Call(call("c1", "pay", `{"to":"eve"}`))}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Create(t.Context(), home, nil); err != nil {
				t.Fatal(err)
			}
			collect(t, r, t.Context(), flow.Text("pay"))
			if err := closeAll(); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), killVariable+"="+dir+"\n"+place)
			if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
				t.Fatalf("the child was not killed: %v\n%s", err, out)
			}
			r, store, closeAll, err = killWorld(dir, "", killTime.Add(time.Hour), &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("done"), flowtest.Say("done")}})
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll()
			qs, err := store.Questions(t.Context(), home)
			if err != nil || len(qs) != 1 {
				t.Fatalf("questions %v, %v", qs, err)
			}
			if pending := qs[0].State == session.Pending; pending != (want == again) {
				t.Fatalf("question is %s", qs[0].State)
			} else if pending {
				if _, err := r.Decide(t.Context(), home, qs[0].ID, session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: qs[0].ArgsSHA256}); err != nil {
					t.Fatal(err)
				}
			}
			for i, resumed := range []bool{want != nothing, false} {
				o := outcome{t: t}
				for ev, err := range r.Resume(t.Context(), home, flow.Input{}) {
					if err != nil {
						t.Fatal(err)
					}
					o.events = append(o.events, ev)
				}
				if (len(o.events) > 0) != resumed {
					t.Fatalf("resume %d: %d events", i+1, len(o.events))
				}
			}
			var told []string
			sess, err := store.Get(t.Context(), home)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range sess.Events {
				for _, r := range ev.Responses() {
					if text := toJSON(t, r.Response); r.ID == "c1" && !strings.Contains(text, "requires confirmation") {
						told = append(told, text)
					}
				}
			}
			effects, err := os.ReadFile(filepath.Join(dir, "effect"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			paid := bytes.Count(effects, []byte("paid\n"))
			if len(told) != 1 || strings.Contains(told[0], "outcome_unknown") != (want == unknown) ||
				want != unknown && (paid != 1 || told[0] != okResponse) || paid > 1 {
				t.Errorf("paid %d times, the model was told %q, want %s", paid, told, want)
			}
			log, err := os.Open(filepath.Join(dir, "audit.log"))
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			if s, err := audit.Verify(log); err != nil || s.Records == 0 {
				t.Errorf("audit log: %+v, %v", s, err)
			}
		})
	}
}
