package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// Of decisions about one question that come through two stores of one file, as those
// of two processes do, one counts, and one call spends it.
func TestDecidedTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	var stores [2]*sqlite.Store
	for i := range stores {
		s, err := sqlite.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		stores[i] = s
	}
	key := session.Key{Tenant: "acme", App: "shop", User: "ada", ID: "s1"}
	asked := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	if _, err := stores[0].Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	if err := stores[0].Ask(t.Context(), session.Question{ID: "q1", Session: key, Run: "r", Agent: "a", Call: "c1", Tool: "pay", Args: []byte(`{}`), Given: []byte(`{}`),
		ArgsSHA256: "d", Asked: asked, Expires: asked.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won, spent []string
	for i := range 100 {
		s := stores[i%2]
		wg.Go(func() {
			d := session.Decision{Approve: true, By: fmt.Sprint(i), Via: "desk", At: asked, ArgsSHA256: "d"}
			if i%5 == 4 {
				d.At = asked.Add(2 * time.Hour)
			}
			_, err := s.Decide(t.Context(), key, "q1", d)
			if err != nil && !errors.Is(err, session.ErrDecided) && !errors.Is(err, session.ErrExpired) {
				t.Errorf("decision %d: %v", i, err)
			}
			begun := s.BeginCall(t.Context(), session.Call{Session: key, ID: session.CallID{Run: "r", Call: "c1", Attempt: i}, Tool: "pay", Approval: "q1", Began: asked})
			if begun != nil && !errors.Is(begun, session.ErrUsed) && !errors.Is(begun, session.ErrDecided) {
				t.Errorf("call %d: %v", i, begun)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, d.By)
			}
			if begun == nil {
				spent = append(spent, d.By)
			}
		})
	}
	wg.Wait()
	for i, s := range stores {
		qs, err := s.Questions(t.Context(), key)
		if err != nil || len(qs) != 1 || len(won) != 1 || qs[0].By != won[0] || len(spent) != 1 || qs[0].State != session.Used {
			t.Errorf("store %d: %+v, %v; %q won, %q spent it", i, qs, err, won, spent)
		}
	}
}
