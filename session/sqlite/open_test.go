package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/session"
)

var update = flag.Bool("update", false, "rewrite testdata")

func execute(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
}

// TestOpenRefuses: a file that this program cannot know is refused as it is.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer.db")
	if err := openAndClose(newer); err != nil {
		t.Fatal(err)
	}
	execute(t, newer, "PRAGMA journal_mode = delete; PRAGMA user_version = 99; CREATE TABLE sessions2 (x)")
	other := filepath.Join(dir, "other.db")
	execute(t, other, "CREATE TABLE t (x); PRAGMA user_version = 1")
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database at all\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		newer:                             fmt.Sprintf("schema version 99 is newer than %d", len(migrations)),
		other:                             "a database, but not of sessions",
		text:                              "not a database",
		"":                                "no path",
		dir:                               "",
		filepath.Join(dir, "no", "where"): "no such file or directory",
	} {
		before, _ := os.ReadFile(path)
		s, err := Open(path)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", path)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "session store "+path+": ") {
			t.Errorf("%s: got %v, want %q in it", path, err, want)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", path)
		}
	}
}

func openAndClose(path string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	return s.Close()
}

// TestOpenMigrates: an older file is brought up to date, with what is in it, and
// a step that does not work leaves it as it was.
func TestOpenMigrates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openStore(t, path)
	if _, err := s.Create(t.Context(), key, map[string]any{"a": "1"}); err != nil {
		t.Fatal(err)
	}
	now := migrations
	defer func() { migrations = now }()
	migrations = append(append([]string{}, now...), "CREATE TABLE added (x); INSERT INTO added VALUES (1)", "no statement")
	if err := openAndClose(path); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("to schema version %d", len(migrations))) {
		t.Fatalf("got %v, want a failing migration", err)
	}
	migrations = migrations[:len(now)+1]
	for range 2 { // the second time nothing is left to do
		if err := openAndClose(path); err != nil {
			t.Fatal(err)
		}
	}
	var n, have int
	if err := s.read.QueryRow("SELECT (SELECT count(*) FROM added), user_version FROM pragma_user_version").Scan(&n, &have); err != nil || n != 1 || have != len(now)+1 {
		t.Errorf("%v: %d rows, version %d", err, n, have)
	}
	if sess, err := s.Get(t.Context(), key); err != nil || sess.State["a"] != "1" {
		t.Errorf("%v: %+v", err, sess)
	}
	migrations = now
	if err := openAndClose(path); err == nil || !strings.Contains(err.Error(), "is newer than") {
		t.Errorf("the older program: %v", err)
	}
}

func TestOpenMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openStore(t, path)
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, want only its owner to read it", filepath.Base(name), info.Mode())
		}
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000"} {
		for _, db := range []*sql.DB{s.write, s.read} {
			var got string
			if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %s (%v), want %s", pragma, got, err, want)
			}
		}
	}
	if _, err := s.read.Exec("DELETE FROM sessions"); err == nil {
		t.Error("a reader can write")
	}
}

// TestOpenTogether: many open the same new file at once, and write to it.
func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	const n = 16
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := Open(path)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Create(t.Context(), key, nil); err != nil && !errors.Is(err, session.ErrExists) {
				t.Errorf("create: %v", err)
			}
			ev := &session.Event{ID: fmt.Sprint(i), Actions: session.Actions{StateDelta: map[string]any{fmt.Sprint("user:", i): i, fmt.Sprint(i): i}}}
			if err := s.Append(t.Context(), key, ev); err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	wg.Wait()
	sess, err := openStore(t, path).Get(t.Context(), key)
	if err != nil || len(sess.Events) != n || len(sess.State) != 2*n {
		t.Errorf("%v: %d events, %d state keys, want %d and %d", err, len(sess.Events), len(sess.State), n, 2*n)
	}
}

// TestReadersDoNotWait: a read is answered while a write holds the file.
func TestReadersDoNotWait(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "s.db"))
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	err := s.update(t.Context(), func(tx *sql.Tx) error {
		if _, err := tx.Exec(`INSERT INTO user_state VALUES ('t', 'a', 'u', 'k', '1')`); err != nil {
			return err
		}
		sess, err := s.Get(t.Context(), key)
		if err == nil && len(sess.State) != 0 {
			t.Error("what was not committed was read")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCancel: a call whose context ends has no effect, and the store goes on.
func TestCancel(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "s.db"))
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Append(ended, key, &session.Event{ID: "e"}); !errors.Is(err, context.Canceled) {
		t.Errorf("append with an ended context: %v", err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.update(t.Context(), func(*sql.Tx) error { // the write waits for this one
		if err := s.Append(waiting, key, &session.Event{ID: "e"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append that waits: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), key, &session.Event{ID: "e"}); err != nil {
		t.Errorf("append after both: %v", err)
	}
}

func TestClosed(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), key, nil); err == nil {
		t.Error("create in a closed store")
	}
	if _, err := s.Get(t.Context(), key); err == nil {
		t.Error("get from a closed store")
	}
}

func benchStore(b *testing.B, events int) *Store {
	s := openStore(b, filepath.Join(b.TempDir(), "s.db"))
	if _, err := s.Create(b.Context(), key, nil); err != nil {
		b.Fatal(err)
	}
	for i := range events {
		if err := s.Append(b.Context(), key, benchEvent(i)); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func benchEvent(i int) *session.Event {
	ev := fullEvent()
	ev.ID = fmt.Sprint(i)
	ev.Actions.StateDelta = map[string]any{"n": i}
	return ev
}

func BenchmarkAppend(b *testing.B) {
	s := benchStore(b, 0)
	i := 0
	for b.Loop() {
		if err := s.Append(b.Context(), key, benchEvent(i)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkGet1000Events(b *testing.B) {
	s := benchStore(b, 1000)
	for b.Loop() {
		if sess, err := s.Get(b.Context(), key); err != nil || len(sess.Events) != 1000 {
			b.Fatal(err)
		}
	}
}
