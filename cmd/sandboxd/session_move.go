package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// exportFormat is the version of what session export writes.
const exportFormat = 1

// An exportHeader is the first line of an exported session. The events follow,
// one a line.
type exportHeader struct {
	Format  int            `json:"format"`
	Session session.Key    `json:"session"`
	State   map[string]any `json:"state,omitempty"` // of this session alone; what is shared stays
	Events  int            `json:"events"`
}

func sessionExportCommand(e *env) *cobra.Command {
	var user string
	c := &cobra.Command{
		Use: "export APP ID", Short: "Write a session, one JSON document a line",
		Long: "Write a session to standard output: a line with its format, key, own state and number\nof events, then one event a line. Session import reads it.\n\n" +
			"The records of calls and answers stay here: an export proves nothing, and a question\nthat was answered is not asked again.",
		Example: "sandboxd session export . demo > demo.jsonl\nsandboxd session export . demo --user ana > demo.jsonl",
		Args:    exactly("APP", "ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withSessions(args[0], func(file *app.File, store *sqlite.Store) error {
				sess, err := storedSession(c.Context(), store, session.Key{App: file.Name, User: user, ID: args[1]})
				if err != nil {
					return err
				}
				return e.exportSession(sess)
			})
		},
	}
	userFlag(c, &user)
	return c
}

func (e *env) exportSession(sess *session.Session) error {
	header := exportHeader{Format: exportFormat, Session: sess.Key, State: ownState(sess.State), Events: len(sess.Events)}
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(header); err != nil {
		return err
	}
	for _, ev := range sess.Events {
		if err := enc.Encode(ev); err != nil {
			return err
		}
	}
	return nil
}

// ownState returns what a session's state has to itself.
func ownState(state map[string]any) map[string]any {
	own := maps.Clone(state)
	maps.DeleteFunc(own, func(name string, _ any) bool {
		scope, _ := session.SplitKey(name)
		return scope == session.ScopeUser || scope == session.ScopeApp
	})
	return own
}

func sessionImportCommand(e *env) *cobra.Command {
	var id string
	c := &cobra.Command{
		Use: "import APP FILE", Short: "Make a session from an exported one",
		Long: "Make a session from what session export wrote, or from the session that ADK's server\nhas at /apps/APP/users/USER/sessions/ID; - is standard input. The session must not be\nthere yet. The import is audited.\n\n" +
			"This is the operator's door: questions that the events ask and do not answer wait for\na person again, and state that the events set for the user or the app is set again.\nImport only what you trust.",
		Example: "sandboxd session import . demo.jsonl\nsandboxd session import . demo.jsonl --session demo-2",
		Args:    exactly("APP", "FILE"),
		RunE:    func(c *cobra.Command, args []string) error { return e.importSession(c.Context(), args[0], args[1], id) },
	}
	c.Flags().StringVar(&id, "session", "", "another `ID` than the exported session has")
	groupFlags(c, "input", "session")
	return c
}

func (e *env) importSession(ctx context.Context, appName, name, id string) error {
	file, err := app.Load(e.path(appName))
	if err != nil {
		return err
	}
	if !file.KeepsSessions() {
		_, err := file.OpenSessions()
		return err
	}
	data, err := e.readFile(name)
	if err != nil {
		return err
	}
	header, events, err := readSession(data)
	if err != nil {
		return &fileError{name, err}
	}
	if header.Session.App != file.Name {
		return &fileError{name, fmt.Errorf("a session of app %q, not of %s", header.Session.App, file.Name)}
	}
	key := session.Key{App: file.Name, User: header.Session.User, ID: cmp.Or(id, header.Session.ID)}
	if err := key.Validate(); err != nil {
		return &fileError{name, err}
	}
	rt, closeAll, err := e.openApp(ctx, file, app.Options{Logger: e.logger(false)})
	if err != nil {
		return err
	}
	defer closeAll()
	_, err = rt.Store.Create(ctx, key, header.State)
	if errors.Is(err, session.ErrExists) {
		return &commandError{What: fmt.Sprintf("session %s: user %s has one of that id", key.ID, key.User),
			Hint: "import it under another id with --session", Exit: exitNotDone}
	}
	if err != nil {
		return err
	}
	if err := rt.Runner.Import(ctx, key, events); err != nil {
		return errors.Join(err, rt.Store.Delete(context.WithoutCancel(ctx), key)) // a part of a history is worse than none
	}
	fmt.Fprintf(e.stdout, "session %s: %s imported\n", foreign(key.ID, true), plural(len(events), "event"))
	return nil
}

// readSession reads what exportSession writes, or a session of ADK's server.
func readSession(data []byte) (exportHeader, []*session.Event, error) {
	var adk struct {
		App string `json:"appName"`
	}
	if readLine(data, &adk) != nil || adk.App == "" {
		return readExport(data)
	}
	doc := adkSession{}
	if err := readLine(data, &doc); err != nil {
		return exportHeader{}, nil, err
	}
	return doc.read()
}

// readExport reads what exportSession writes, and makes sure that all of it is
// there and can be stored.
func readExport(data []byte) (exportHeader, []*session.Event, error) {
	var header exportHeader
	var events readEvents
	n := 0
	for line := range bytes.Lines(data) {
		if n++; n == 1 {
			if err := readLine(line, &header); err != nil {
				return header, nil, fmt.Errorf("line 1: %w", err)
			}
			if header.Format != exportFormat {
				return header, nil, fmt.Errorf("line 1: format %d, want %d", header.Format, exportFormat)
			}
			continue
		}
		ev := &session.Event{}
		if err := readLine(line, ev); err != nil {
			return header, nil, fmt.Errorf("line %d: %w", n, err)
		}
		if err := events.add(ev); err != nil {
			return header, nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if n == 0 {
		return header, nil, errors.New("empty")
	}
	if len(events.list) != header.Events {
		return header, nil, fmt.Errorf("%s, but its first line says %d", plural(len(events.list), "event"), header.Events)
	}
	return header, events.list, nil
}

// readEvents are events that can be stored one after the other.
type readEvents struct {
	list []*session.Event
	ids  map[string]bool
}

func (r *readEvents) add(ev *session.Event) error {
	switch {
	case ev.ID == "":
		return errors.New("an event without id")
	case r.ids[ev.ID]:
		return fmt.Errorf("event %s is there twice", ev.ID)
	case ev.Partial:
		return fmt.Errorf("event %s is partial", ev.ID)
	}
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[ev.ID] = true
	r.list = append(r.list, ev)
	return nil
}

// An adkSession is a session as ADK's servers write it. That in Go leaves out when an
// event was; what is said of the whole session then counts.
type adkSession struct {
	App     string         `json:"appName"`
	User    string         `json:"userId"`
	ID      string         `json:"id"`
	State   map[string]any `json:"state"` // with what is shared
	Updated adkTime        `json:"lastUpdateTime"`
	Events  []struct {
		session.Event
		When adkTime `json:"timestamp"`
	} `json:"events"`
}

// An adkTime is a time in seconds since 1970, which may have a fraction; 0: not known.
type adkTime float64

func (t adkTime) time() time.Time {
	if t <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(float64(t) * 1e6))).UTC()
}

func (s *adkSession) read() (exportHeader, []*session.Event, error) {
	header := exportHeader{Format: exportFormat, Session: session.Key{App: s.App, User: s.User, ID: s.ID}, State: ownState(s.State), Events: len(s.Events)}
	var events readEvents
	for i := range s.Events {
		ev := &s.Events[i].Event
		if ev.Time.IsZero() {
			ev.Time = cmp.Or(s.Events[i].When, s.Updated).time()
		}
		if err := events.add(ev); err != nil {
			return header, nil, fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	return header, events.list, nil
}

// readLine decodes one document. Numbers keep their text.
func readLine(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("no JSON document: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON document")
	}
	return nil
}
