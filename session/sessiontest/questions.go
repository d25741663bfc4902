package sessiontest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/session"
)

func aQuestion(id string) session.Question {
	return session.Question{ID: id, Session: home, Run: "run", Agent: "agent", Call: "c1", Tool: "tool", Module: "sha256:1",
		Args: json.RawMessage(`{"n":1.0}`), Given: json.RawMessage(`{"n":1}`), ArgsSHA256: "abc", Policy: "policy", Hint: "hint",
		Asked: noon, AskedBy: "bo", Expires: noon.Add(time.Hour)}
}

func questions(t *testing.T, s session.Store) []session.Question {
	t.Helper()
	all, err := s.Questions(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ask creates the session home with some questions.
func ask(t *testing.T, s session.Store, ids ...string) {
	t.Helper()
	create(t, s, home)
	for _, id := range ids {
		if err := s.Ask(t.Context(), aQuestion(id)); err != nil {
			t.Fatal(err)
		}
	}
}

func yes() session.Decision { return session.Decision{Approve: true, By: "eve", At: noon} }

func testAsk(t *testing.T, s session.Store) {
	want(t, "ask without a session", s.Ask(t.Context(), aQuestion("q1")), session.ErrNotFound)
	_, err := s.Questions(t.Context(), home)
	want(t, "questions without a session", err, session.ErrNotFound)
	create(t, s, home)
	forged := aQuestion("q2")
	forged.State, forged.By, forged.Decided, forged.Payload, forged.Via, forged.Reason, forged.ByRoles = session.Approved, "nobody", noon, json.RawMessage(`1`), "x", "y", []string{"z"}
	if err := s.Ask(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if got := questions(t, s)[0]; got.State != session.Pending {
		t.Errorf("a question was asked as %q: %+v", got.State, got)
	}
	want(t, "spend what was asked as approved", spend(t, s, home, "q2"), session.ErrDecided)
	want(t, "ask again", s.Ask(t.Context(), aQuestion("q2")), session.ErrExists)
	if s.Ask(t.Context(), aQuestion("")) == nil {
		t.Error("a question without id was asked")
	}
	if err := s.Ask(t.Context(), aQuestion("q1")); err != nil {
		t.Fatal(err)
	}
	q := aQuestion("q1")
	q.State = session.Pending
	got := questions(t, s)
	if len(got) != 2 || got[0].ID != "q2" {
		t.Fatalf("questions %+v, want q2, then q1", got)
	}
	sameJSON(t, "question", got[1], q)
}

func testAppQuestions(t *testing.T, s session.Store) {
	listed := func(states ...session.QuestionState) (ids []string) {
		t.Helper()
		all, err := s.AppQuestions(t.Context(), home.Tenant, home.App, states...)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			ids = append(ids, q.Session.User+"/"+q.Session.ID+"/"+q.ID)
		}
		return ids
	}
	if got := listed(); len(got) != 0 {
		t.Errorf("questions before there is a session: %q", got)
	}
	ask(t, s, "b", "a")
	other, user, elsewhere := home, home, home
	other.ID, user.User, elsewhere.App = "zz", "aaa", home.App+"2"
	tenant := home
	tenant.Tenant += "2"
	for _, key := range []session.Key{other, user, elsewhere, tenant} {
		create(t, s, key)
		q := aQuestion("c")
		q.Session = key
		if key == other {
			q.Asked = noon.Add(-time.Minute)
		}
		if err := s.Ask(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	here := home.User + "/" + home.ID + "/"
	want := []string{home.User + "/zz/c", "aaa/" + home.ID + "/c", here + "a", here + "b"}
	if got := listed(); !slices.Equal(got, want) {
		t.Errorf("questions of the app %q, want %q", got, want)
	}
	if _, err := s.Decide(t.Context(), home, "a", yes()); err != nil {
		t.Fatal(err)
	}
	if got := listed(session.Approved); !slices.Equal(got, want[2:3]) {
		t.Errorf("approved questions %q, want %q", got, want[2:3])
	}
	if got := listed(session.Pending, session.Used); !slices.Equal(got, []string{want[0], want[1], want[3]}) {
		t.Errorf("pending and used questions %q", got)
	}
	all, err := s.AppQuestions(t.Context(), home.Tenant, home.App, session.Approved)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, q := range questions(t, s) {
		if q.ID == "a" {
			sameJSON(t, "question of the app", all[0], q)
		}
	}
}

func testDecide(t *testing.T, s session.Store) {
	ask(t, s, "q1", "q2", "q3", "q4")
	for _, c := range []struct {
		id   string
		d    session.Decision
		want session.QuestionState
	}{
		{"q1", session.Decision{Approve: true, By: "eve", At: noon.Add(time.Minute), ArgsSHA256: "abc", Payload: json.RawMessage(`{"n":1.0}`), Via: "desk", Reason: "it is due", Roles: []string{"approver", "a,\"b"}}, session.Approved},
		{"q2", session.Decision{Approve: false, By: "eve", At: noon}, session.Rejected},
		{"q3", session.Decision{Approve: true, By: "eve", At: noon.Add(time.Hour)}, session.Approved}, // the last moment
	} {
		got, err := s.Decide(t.Context(), home, c.id, c.d)
		if err != nil {
			t.Fatalf("decide %s: %v", c.id, err)
		}
		q := aQuestion(c.id)
		q.State, q.By, q.Decided, q.Payload, q.Via, q.Reason, q.ByRoles = c.want, c.d.By, c.d.At, c.d.Payload, c.d.Via, c.d.Reason, slices.Clone(c.d.Roles)
		sameJSON(t, c.id+" as decided", got, q)
		for i := range c.d.Roles {
			c.d.Roles[i], got.ByRoles[i] = "spoiled", "spoiled"
		}
		for _, stored := range questions(t, s) {
			if stored.ID == c.id {
				sameJSON(t, c.id+" as stored", stored, q)
			}
		}
	}
	if q := questions(t, s)[3]; q.State != session.Pending {
		t.Errorf("the question nobody answered is %s", q.State)
	}
}

func testDecideRefuses(t *testing.T, s session.Store) {
	ask(t, s, "q1")
	untouched := questions(t, s)
	late, mismatch := yes(), yes()
	late.At = noon.Add(time.Hour + time.Nanosecond)
	mismatch.ArgsSHA256 = "abd"
	_, err := s.Decide(t.Context(), home, "q1", late)
	want(t, "decide too late", err, session.ErrExpired)
	_, err = s.Decide(t.Context(), home, "q1", mismatch)
	want(t, "decide about other arguments", err, session.ErrMismatch)
	_, err = s.Decide(t.Context(), home, "q2", yes())
	want(t, "decide what was never asked", err, session.ErrNotFound)
	sameJSON(t, "questions after refused decisions", questions(t, s), untouched)
	if _, err := s.Decide(t.Context(), home, "q1", session.Decision{By: "eve", At: noon}); err != nil {
		t.Fatal(err)
	}
	decided := questions(t, s)
	_, err = s.Decide(t.Context(), home, "q1", yes())
	want(t, "decide again", err, session.ErrDecided)
	_, err = s.Decide(t.Context(), home, "q1", late)
	want(t, "decide again, too late", err, session.ErrDecided)
	sameJSON(t, "questions after a second decision", questions(t, s), decided)
}

func testDecideElsewhere(t *testing.T, s session.Store) {
	ask(t, s, "q1")
	for name, key := range neighbours() {
		_, err := s.Decide(t.Context(), key, "q1", yes())
		want(t, "decide for "+name+" that is not there", err, session.ErrNotFound)
		create(t, s, key)
		_, err = s.Decide(t.Context(), key, "q1", yes())
		want(t, "decide for "+name, err, session.ErrNotFound)
		want(t, "spend for "+name, spend(t, s, key, "q1"), session.ErrNotFound)
		if all, err := s.Questions(t.Context(), key); err != nil || len(all) != 0 {
			t.Errorf("questions of %s: %v, %v", name, all, err)
		}
	}
	if q := questions(t, s)[0]; q.State != session.Pending {
		t.Errorf("the question became %s from elsewhere", q.State)
	}
}

func testDecideRaces(t *testing.T, s session.Store) {
	ask(t, s, "q1")
	won := race(t, session.ErrDecided, func(i int) error {
		_, err := s.Decide(t.Context(), home, "q1", session.Decision{Approve: i%2 == 0, By: fmt.Sprint(i), At: noon})
		return err
	})
	q := questions(t, s)[0]
	state := session.Rejected
	if len(won) == 1 && won[0]%2 == 0 {
		state = session.Approved
	}
	if len(won) != 1 || q.By != fmt.Sprint(won[0]) || q.State != state {
		t.Errorf("of %d decisions %d won (%v); stored: %s by %s", racers, len(won), won, q.State, q.By)
	}
}

// spend begins a call of its own that spends an approval. A call that may not is
// not recorded.
func spend(t *testing.T, s session.Store, key session.Key, question string) error {
	t.Helper()
	before, err := s.Calls(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	c := aCall(rand.Text(), 0)
	c.Session, c.Approval = key, question
	failed := s.BeginCall(t.Context(), c)
	after, err := s.Calls(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	recorded := slices.ContainsFunc(after, func(found session.Call) bool { return found.ID == c.ID && found.Approval == question })
	if recorded != (failed == nil) || failed == nil && len(after) == len(before) {
		t.Errorf("a call that spends %s: %v; recorded: %t", question, failed, recorded)
	}
	return failed
}

func testSpend(t *testing.T, s session.Store) {
	ask(t, s, "q1", "q2")
	want(t, "spend what is pending", spend(t, s, home, "q1"), session.ErrDecided)
	want(t, "spend what was never asked", spend(t, s, home, "q3"), session.ErrNotFound)
	if _, err := s.Decide(t.Context(), home, "q1", yes()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decide(t.Context(), home, "q2", session.Decision{By: "eve", At: noon}); err != nil {
		t.Fatal(err)
	}
	twice := aCall("twice", 0)
	if err := s.BeginCall(t.Context(), twice); err != nil {
		t.Fatal(err)
	}
	twice.Approval = "q1"
	want(t, "spend for a call that has begun", s.BeginCall(t.Context(), twice), session.ErrExists)
	if q := questions(t, s)[0]; q.State != session.Approved {
		t.Errorf("a call that could not begin left its approval %s", q.State)
	}
	if err := spend(t, s, home, "q1"); err != nil {
		t.Fatal(err)
	}
	want(t, "spend again", spend(t, s, home, "q1"), session.ErrUsed)
	want(t, "spend what was rejected", spend(t, s, home, "q2"), session.ErrDecided)
	_, err := s.Decide(t.Context(), home, "q1", yes())
	want(t, "decide what was used", err, session.ErrDecided)
	got := questions(t, s)
	if got[0].State != session.Used || got[1].State != session.Rejected || got[0].By != "eve" {
		t.Errorf("questions %+v", got)
	}
}

func testSpendRaces(t *testing.T, s session.Store) {
	ask(t, s, "q1")
	if _, err := s.Decide(t.Context(), home, "q1", yes()); err != nil {
		t.Fatal(err)
	}
	if won := race(t, session.ErrUsed, func(int) error { return spend(t, s, home, "q1") }); len(won) != 1 {
		t.Errorf("one approval was spent %d times", len(won))
	}
}

func testQuestionCopies(t *testing.T, s session.Store) {
	create(t, s, home)
	given := aQuestion("q1")
	if err := s.Ask(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	spoil := func(q session.Question) {
		for _, b := range [][]byte{q.Args, q.Given, q.Payload} {
			copy(b, "spoiled")
		}
	}
	spoil(given)
	d := yes()
	d.Payload = json.RawMessage(`"payload"`)
	decided, err := s.Decide(t.Context(), home, "q1", d)
	if err != nil {
		t.Fatal(err)
	}
	copy(d.Payload, "spoiled")
	spoil(decided)
	read := questions(t, s)[0]
	spoil(read)
	got := questions(t, s)[0]
	if string(got.Args) != `{"n":1.0}` || string(got.Given) != `{"n":1}` || string(got.Payload) != `"payload"` {
		t.Errorf("question after its givers and readers changed theirs: args %s, given %s, payload %s", got.Args, got.Given, got.Payload)
	}
}
