package sessiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/session"
)

func aCall(id string, attempt int) session.Call {
	return session.Call{Session: home, ID: session.CallID{Run: "run", Call: id, Attempt: attempt}, Agent: "agent", Tool: "tool",
		Module: "sha256:1", ArgsSHA256: "2", Began: noon}
}

func calls(t *testing.T, s session.Store) []session.Call {
	t.Helper()
	all, err := s.Calls(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func testCalls(t *testing.T, s session.Store) {
	c := aCall("c1", 0)
	want(t, "begin without a session", s.BeginCall(t.Context(), c), session.ErrNotFound)
	_, err := s.Calls(t.Context(), home)
	want(t, "calls without a session", err, session.ErrNotFound)
	create(t, s, home)
	c.CallEnd = session.CallEnd{State: session.CallDone, Code: "forged", Result: json.RawMessage(`1`), Ended: noon}
	if err := s.BeginCall(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	got := calls(t, s)
	c.CallEnd = session.CallEnd{State: session.CallIntent}
	sameJSON(t, "begun", got, []session.Call{c})
	want(t, "begin again", s.BeginCall(t.Context(), c), session.ErrExists)
	others := []session.Call{aCall("c1", 1), aCall("c0", 0)}
	for _, other := range others {
		if err := s.BeginCall(t.Context(), other); err != nil {
			t.Fatalf("begin %+v: %v", other.ID, err)
		}
	}
	otherRun := aCall("c1", 0)
	otherRun.ID.Run = "run2"
	if err := s.BeginCall(t.Context(), otherRun); err != nil {
		t.Fatalf("begin the same call of another run: %v", err)
	}
	var ids []session.CallID
	for _, c := range calls(t, s) {
		ids = append(ids, c.ID)
	}
	sameJSON(t, "order", ids, []session.CallID{c.ID, others[0].ID, others[1].ID, otherRun.ID})
}

func testCallEnds(t *testing.T, s session.Store) {
	create(t, s, home)
	id := session.CallID{Run: "run", Call: "c1"}
	end := session.CallEnd{State: session.CallDone, Code: "ok", Result: json.RawMessage(`{"n":1.0}`), Ended: noon.Add(time.Second)}
	want(t, "end before begin", s.EndCall(t.Context(), home, id, end), session.ErrNotFound)
	for i, state := range []session.CallState{session.CallDone, session.CallDenied, session.CallUnknown} {
		c := aCall(fmt.Sprintf("c%d", i+1), 0)
		if err := s.BeginCall(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []session.CallState{"", session.CallIntent, "gone"} {
			if s.EndCall(t.Context(), home, c.ID, session.CallEnd{State: bad}) == nil {
				t.Errorf("a call ended as %q", bad)
			}
		}
		for name, key := range neighbours() {
			want(t, "end in "+name, s.EndCall(t.Context(), key, c.ID, end), session.ErrNotFound)
		}
		attempt := c.ID
		attempt.Attempt = 1
		want(t, "end another attempt", s.EndCall(t.Context(), home, attempt, end), session.ErrNotFound)
		e := end
		e.State = state
		if err := s.EndCall(t.Context(), home, c.ID, e); err != nil {
			t.Fatalf("end as %s: %v", state, err)
		}
		want(t, "end again", s.EndCall(t.Context(), home, c.ID, session.CallEnd{State: session.CallDenied, Code: "late"}), session.ErrDecided)
		c.CallEnd = e
		sameJSON(t, "ended", calls(t, s)[i], c)
	}
	want(t, "begin an ended call", s.BeginCall(t.Context(), aCall("c1", 0)), session.ErrExists)
}

func testCallRaces(t *testing.T, s session.Store) {
	create(t, s, home)
	began := race(t, session.ErrExists, func(int) error { return s.BeginCall(t.Context(), aCall("c1", 0)) })
	ended := race(t, session.ErrDecided, func(i int) error {
		return s.EndCall(t.Context(), home, session.CallID{Run: "run", Call: "c1"}, session.CallEnd{State: session.CallDone, Code: fmt.Sprint(i)})
	})
	got := calls(t, s)
	if len(began) != 1 || len(ended) != 1 || len(got) != 1 || got[0].Code != fmt.Sprint(ended[0]) {
		t.Errorf("of %d: %d began and %d ended a call; stored %+v", racers, len(began), len(ended), got)
	}
}

// race runs f in many goroutines and returns the numbers of those that had no
// error; all others must have the error lost.
func race(t *testing.T, lost error, f func(i int) error) []int {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []int
	var ready atomic.Int32
	start := make(chan struct{})
	for i := range racers {
		wg.Go(func() {
			if ready.Add(1) == racers {
				close(start)
			}
			<-start
			err := f(i)
			if err != nil && !errors.Is(err, lost) {
				t.Errorf("goroutine %d: %v, want success or %q", i, err, lost)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, i)
			}
		})
	}
	wg.Wait()
	return won
}

func testCallCopies(t *testing.T, s session.Store) {
	create(t, s, home)
	if err := s.BeginCall(t.Context(), aCall("c1", 0)); err != nil {
		t.Fatal(err)
	}
	result := json.RawMessage(`"result"`)
	if err := s.EndCall(t.Context(), home, session.CallID{Run: "run", Call: "c1"}, session.CallEnd{State: session.CallDone, Result: result}); err != nil {
		t.Fatal(err)
	}
	copy(result, "spoiled!")
	got := calls(t, s)
	if string(got[0].Result) != `"result"` {
		t.Errorf("result after its giver changed it: %s", got[0].Result)
	}
	copy(got[0].Result, "spoiled!")
	got[0].Tool = "spoiled"
	if again := calls(t, s)[0]; string(again.Result) != `"result"` || again.Tool != "tool" {
		t.Errorf("call after a reader changed it: %+v", again)
	}
}
