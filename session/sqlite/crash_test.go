package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// crashVariable makes the test binary a child that works on a store until it is
// killed: the path of the file, then the name of the child's sessions.
const crashVariable = "SQLITE_CRASH_CHILD"

func TestMain(m *testing.M) {
	if args := os.Getenv(crashVariable); args != "" {
		path, lane, _ := strings.Cut(args, "\n")
		fmt.Println("failed", child(context.Background(), path, lane))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	rounds = 160 // each kills one child in every lane
	lanes  = 2   // children that work on the file at the same time
	reuse  = 10  // rounds that go on with the same session
)

func laneKey(lane string) session.Key { return session.Key{App: "app", User: "u", ID: lane} }

// sharedKey is a session that the children of all lanes append to.
var sharedKey = session.Key{App: "app", User: "u", ID: "shared"}

func callID(i int) session.CallID { return session.CallID{Run: "run", Call: fmt.Sprint(i)} }

// child first deals with what it finds, as a program does that starts again, and
// then works. It reports what the store has acknowledged, one line each, and
// ends only with an error.
func child(ctx context.Context, path, lane string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	key := laneKey(lane)
	for _, k := range []session.Key{key, sharedKey} {
		if _, err := s.Create(ctx, k, nil); err != nil && !errors.Is(err, session.ErrExists) {
			return err
		}
	}
	sess, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	calls, err := s.Calls(ctx, key)
	if err != nil {
		return err
	}
	calls, _ = split(calls)
	questions, err := s.Questions(ctx, key)
	if err != nil {
		return err
	}
	fmt.Println("found", len(sess.Events), len(calls), len(questions))
	for i, c := range calls {
		if err := s.BeginCall(ctx, session.Call{Session: key, ID: c.ID}); !errors.Is(err, session.ErrExists) {
			return fmt.Errorf("call %d could begin again: %v", i, err)
		}
		if c.State == session.CallIntent {
			if err := s.EndCall(ctx, key, c.ID, session.CallEnd{State: session.CallUnknown}); err != nil {
				return err
			}
			fmt.Println("end", i)
		}
	}
	for i := range questions {
		if err := settle(ctx, s, key, i); err != nil {
			return err
		}
	}
	for i := len(sess.Events); ; i++ {
		if err := work(ctx, s, key, lane, i, len(calls), len(questions)); err != nil {
			return err
		}
		calls, questions = append(calls, session.Call{}), append(questions, session.Question{})
	}
}

// work is one turn: an event, a call and a question.
func work(ctx context.Context, s *Store, key session.Key, lane string, event, call, question int) error {
	ev := &session.Event{ID: fmt.Sprint(event), Author: lane, Actions: session.Actions{StateDelta: map[string]any{"n": event, "user:" + lane: event}}}
	if err := s.Append(ctx, key, ev); err != nil {
		return err
	}
	fmt.Println("event", event)
	version, err := s.Artifacts().Save(ctx, key, "f", genai.NewPartFromText(lane))
	if err != nil {
		return err
	}
	fmt.Println("save", version-1)
	shared := &session.Event{ID: fmt.Sprint(lane, "-", event), Author: lane, Branch: fmt.Sprint(event)}
	if err := s.Append(ctx, sharedKey, shared); err != nil && !errors.Is(err, session.ErrExists) {
		return err
	}
	fmt.Println("shared", event)
	if err := s.BeginCall(ctx, session.Call{Session: key, ID: callID(call)}); err != nil {
		return err
	}
	fmt.Println("begin", call)
	if err := s.EndCall(ctx, key, callID(call), session.CallEnd{State: session.CallDone, Result: json.RawMessage(fmt.Sprint(call))}); err != nil {
		return err
	}
	fmt.Println("end", call)
	if err := s.Ask(ctx, session.Question{ID: fmt.Sprint(question), Session: key}); err != nil {
		return err
	}
	fmt.Println("ask", question)
	return settle(ctx, s, key, question)
}

// settle decides and spends a question, as far as nobody has. Only a call that may
// begin is reported: it is where it would run.
func settle(ctx context.Context, s *Store, key session.Key, i int) error {
	id := fmt.Sprint(i)
	switch _, err := s.Decide(ctx, key, id, session.Decision{Approve: true, By: "eve", At: time.Unix(0, 0)}); {
	case err == nil:
		fmt.Println("decide", i)
	case !errors.Is(err, session.ErrDecided):
		return err
	}
	switch err := s.BeginCall(ctx, session.Call{Session: key, ID: session.CallID{Run: "approved", Call: id, Attempt: rand.Int()}, Approval: id}); {
	case err == nil:
		fmt.Println("spend", i)
	case !errors.Is(err, session.ErrUsed):
		return err
	}
	return nil
}

// split tells the calls of work from those that were approved, which it counts by
// question.
func split(calls []session.Call) (worked []session.Call, approved map[string]int) {
	approved = map[string]int{}
	for _, c := range calls {
		if c.Approval == "" {
			worked = append(worked, c)
		} else {
			approved[c.Approval]++
		}
	}
	return worked, approved
}

// A laneLog is what the children of a lane have reported.
type laneLog struct {
	lane    string
	events  int         // 0 to events-1 are stored
	saved   int         // versions 1 to saved of the artifact
	shared  int         // the same, in the shared session
	began   int         // 0 to began-1
	ended   map[int]int // how often, by number
	asked   int
	decided map[int]int
	spent   map[int]int
	late    int // operations that were found done although the kill kept the report back
}

// note takes down one line of a child.
func (l *laneLog) note(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	var a, b, c int
	if n, _ := fmt.Sscan(rest, &a, &b, &c); n != 1 && n != 3 {
		return fmt.Errorf("child: %s", line)
	}
	next := func(have *int) error {
		if a != *have {
			return fmt.Errorf("%s: reported %d after %d", word, a, *have-1)
		}
		*have++
		return nil
	}
	once := func(m map[int]int) error {
		if m[a]++; m[a] > 1 {
			return fmt.Errorf("%s: %d succeeded %d times", word, a, m[a])
		}
		return nil
	}
	switch word {
	case "found":
		return errors.Join(l.atLeast("events", &l.events, a), l.atLeast("calls", &l.began, b), l.atLeast("questions", &l.asked, c))
	case "event":
		return next(&l.events)
	case "save":
		if a != l.saved && a != l.saved+1 { // the kill can have kept back one report
			return fmt.Errorf("save: reported version %d after %d", a+1, l.saved)
		}
		l.late += a - l.saved
		l.saved = a + 1
	case "shared":
		l.shared = a + 1
	case "begin":
		return next(&l.began)
	case "end":
		return once(l.ended)
	case "ask":
		return next(&l.asked)
	case "decide":
		return once(l.decided)
	case "spend":
		return once(l.spent)
	default:
		return fmt.Errorf("child: %s", line)
	}
	return nil
}

// atLeast compares what is stored with what was reported. The kill can have kept
// back one report.
func (l *laneLog) atLeast(what string, reported *int, stored int) error {
	if stored != *reported && stored != *reported+1 {
		return fmt.Errorf("%d %s were acknowledged, %d are stored", *reported, what, stored)
	}
	l.late += stored - *reported
	*reported = stored
	return nil
}

// check compares the session of the lane with its log.
func (l *laneLog) check(ctx context.Context, s *Store) error {
	key := laneKey(l.lane)
	sess, err := s.Get(ctx, key)
	if errors.Is(err, session.ErrNotFound) && l.events == 0 {
		return nil // no child lived long enough
	}
	if err != nil {
		return err
	}
	calls, err := s.Calls(ctx, key)
	if err != nil {
		return err
	}
	calls, approved := split(calls)
	questions, err := s.Questions(ctx, key)
	if err != nil {
		return err
	}
	if err := errors.Join(l.atLeast("events", &l.events, len(sess.Events)), l.atLeast("calls", &l.began, len(calls)), l.atLeast("questions", &l.asked, len(questions))); err != nil {
		return err
	}
	var versions, newest int
	if err := s.read.QueryRowContext(ctx, `SELECT count(*), coalesce(max(version), 0) FROM artifacts WHERE session = ? AND part = ?`,
		key.ID, fmt.Sprintf(`{"text":%q}`, l.lane)).Scan(&versions, &newest); err != nil {
		return err
	}
	if versions != newest {
		return fmt.Errorf("%d versions of the artifact are stored, the newest is %d", versions, newest)
	}
	if err := l.atLeast("versions", &l.saved, versions); err != nil {
		return err
	}
	for i, ev := range sess.Events {
		if ev.ID != fmt.Sprint(i) || ev.Author != l.lane {
			return fmt.Errorf("event %d is %s by %s", i, ev.ID, ev.Author)
		}
	}
	if n := len(sess.Events); n > 0 {
		for _, name := range []string{"n", "user:" + l.lane} {
			if sess.State[name] != json.Number(fmt.Sprint(n-1)) {
				return fmt.Errorf("state %s is %v after event %d", name, sess.State[name], n-1)
			}
		}
	}
	for i, c := range calls {
		legal := c.State == session.CallIntent && l.ended[i] == 0 ||
			c.State == session.CallDone && string(c.Result) == fmt.Sprint(i) || c.State == session.CallUnknown && c.Result == nil
		if c.ID != callID(i) || !legal {
			return fmt.Errorf("call %d, ended %d times: %+v", i, l.ended[i], c)
		}
	}
	for i, q := range questions {
		legal := q.State == session.Pending && l.decided[i] == 0 && l.spent[i] == 0 ||
			q.State == session.Approved && l.spent[i] == 0
		if q.State == session.Used {
			legal = approved[q.ID] == 1
		} else {
			legal = legal && approved[q.ID] == 0
		}
		if q.ID != fmt.Sprint(i) || !legal {
			return fmt.Errorf("question %d, decided %d and spent %d times, for %d calls: %+v", i, l.decided[i], l.spent[i], approved[q.ID], q)
		}
	}
	return nil
}

// checkShared finds gaps, duplicates and lost events in the session of all lanes.
func checkShared(ctx context.Context, s *Store, logs []*laneLog) error {
	sess, err := s.Get(ctx, sharedKey)
	if err != nil {
		return err
	}
	next := map[string]int{}
	for i, ev := range sess.Events {
		if ev.Branch != fmt.Sprint(next[ev.Author]) {
			// An event of the lane's own session whose copy here was lost to a kill
			// is not made up for, so numbers may be left out, but only go up.
			var n int
			if _, err := fmt.Sscan(ev.Branch, &n); err != nil || n < next[ev.Author] {
				return fmt.Errorf("shared event %d is %s of %s, after %d", i, ev.Branch, ev.Author, next[ev.Author]-1)
			}
			next[ev.Author] = n
		}
		next[ev.Author]++
	}
	for _, l := range logs {
		if next[l.lane] < l.shared {
			return fmt.Errorf("shared events of %s end with %d, %d was acknowledged", l.lane, next[l.lane]-1, l.shared-1)
		}
	}
	var bad int
	err = s.read.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT session FROM events GROUP BY session HAVING min(seq) <> 1 OR max(seq) <> count(*))`).Scan(&bad)
	if err == nil && bad > 0 {
		err = fmt.Errorf("%d sessions have gaps in the numbers of their events", bad)
	}
	return err
}

// TestKills kills children while they work on one file, and compares what they
// reported with what is stored. In half of the rounds it is the next children
// that find the file as the kill left it.
func TestKills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	rnd := rand.New(rand.NewPCG(1, 2))
	var logs []*laneLog
	current := make([]*laneLog, lanes)
	kills, work, late := 0, 0, 0
	for round := range rounds {
		if round%reuse == 0 {
			for i := range current {
				current[i] = &laneLog{lane: fmt.Sprintf("%d.%d", i, round/reuse), ended: map[int]int{}, decided: map[int]int{}, spent: map[int]int{}}
			}
			logs = append(logs, current...)
		}
		var wg sync.WaitGroup
		errs := make([]error, lanes)
		lines := make([]int, lanes)
		for i, l := range current {
			after, pause := rnd.IntN(20), time.Duration(rnd.Int64N(int64(4*time.Millisecond)))
			wg.Go(func() { lines[i], errs[i] = killOne(t.Context(), path, l, after, pause) })
		}
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				t.Fatalf("round %d, lane %s: %v", round, current[i].lane, err)
			}
			kills++
			work += lines[i]
		}
		if rnd.IntN(2) == 0 && round < rounds-1 && (round+1)%reuse != 0 {
			continue
		}
		s, err := Open(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, l := range current {
			if err := l.check(t.Context(), s); err != nil {
				t.Fatalf("round %d, lane %s: %v", round, l.lane, err)
			}
		}
		if (round+1)%reuse == 0 {
			for _, l := range logs {
				if err := l.check(t.Context(), s); err != nil {
					t.Fatalf("round %d, lane %s: %v", round, l.lane, err)
				}
			}
			if err := checkShared(t.Context(), s, logs); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	spent := 0
	for _, l := range logs {
		spent += len(l.spent)
		late += l.late
	}
	if kills < 300 || spent == 0 {
		t.Errorf("%d kills, %d approvals spent: that shows nothing", kills, spent)
	}
	t.Logf("%d kills; %d operations acknowledged, %d approvals spent; %d times the kill fell between the commit and its report", kills, work, spent, late)
}

// killOne starts a child, kills it a while after it has reported so many lines, and
// notes all that it has reported by then. Nothing waits for the pause: without it
// every kill would fall into the beginning of an operation.
func killOne(ctx context.Context, path string, l *laneLog, after int, pause time.Duration) (int, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashVariable+"="+path+"\n"+l.lane)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := 0
	var errs []error
	r := bufio.NewReader(out)
	for {
		if lines == after {
			time.AfterFunc(pause, func() { _ = cmd.Process.Kill() }) // Wait says whether it was killed
		}
		line, err := r.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
		lines++
		if err := l.note(strings.TrimSpace(line)); err != nil {
			errs = append(errs, err)
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != -1 {
		errs = append(errs, fmt.Errorf("the child was not killed: %v", err))
	}
	return lines, errors.Join(errs...)
}
