package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// KeepsSessions reports whether the app's sessions outlive the process.
func (f *File) KeepsSessions() bool { return f.Store.Sessions == "sqlite" }

// OpenSessions opens the app's stored sessions; its caller closes them. It is an
// [*Error] if the app keeps none.
func (f *File) OpenSessions() (*sqlite.Store, error) {
	if !f.KeepsSessions() {
		return nil, bad(abi.Usage, "write store: {sessions: sqlite} in "+FileName, "app %s: keeps no sessions", f.Name)
	}
	path := f.SessionsPath()
	const hint = "name a file that can be written in store.path"
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, bad(abi.StorageUnavailable, hint, "session store: %v", err)
	}
	store, err := sqlite.Open(path)
	if err != nil {
		return nil, bad(abi.StorageUnavailable, hint, "%v", err)
	}
	return store, nil
}

// openStore opens what is kept between runs: sessions, artifacts, and values of kv,
// which it returns and which end by the clock now.
func (rt *Runtime) openStore(now func() time.Time) (host.KVStore, error) {
	if !rt.File.KeepsSessions() {
		rt.Store, rt.artifacts = session.NewMemory(), flow.NewMemoryArtifacts()
		return host.NewMemoryKV(now), nil
	}
	store, err := rt.File.OpenSessions()
	if err != nil {
		return nil, err
	}
	rt.Store, rt.artifacts = store, store.Artifacts()
	rt.closers = append(rt.closers, store)
	if rt.File.Memory != "" {
		rt.memory = &memory{store}
	}
	return keptKV{store.KV(now)}, nil
}

// Pending returns the questions of a session that can still be answered by the
// app's clock, in the order asked.
func (f *File) Pending(ctx context.Context, store session.Store, key session.Key) ([]session.Question, error) {
	questions, err := store.Questions(ctx, key)
	if err != nil {
		return nil, err
	}
	return f.stillPending(questions)
}

// AllPending returns those of all sessions of the app, the longest asked first.
func (f *File) AllPending(ctx context.Context, store session.Store) ([]session.Question, error) {
	questions, err := store.AppQuestions(ctx, "", f.Name, session.Pending)
	if err != nil {
		return nil, err
	}
	return f.stillPending(questions)
}

func (f *File) stillPending(questions []session.Question) ([]session.Question, error) {
	now, err := f.Now()
	return slices.DeleteFunc(questions, func(q session.Question) bool {
		return q.State != session.Pending || !q.Expires.IsZero() && now.After(q.Expires)
	}), err
}

// Now returns the time by the app's clock.
func (f *File) Now() (time.Time, error) {
	clock, err := f.clock()
	if err != nil || clock == nil {
		return time.Now(), err
	}
	return clock(), nil
}

// Session returns the key of a user's session, which it makes if there is none of
// that id, and copies those of the app's files into its artifacts that are new or
// have changed. Artifacts are kept as long as sessions are.
func (rt *Runtime) Session(ctx context.Context, user, id string) (session.Key, error) {
	key := session.Key{App: rt.File.Name, User: user, ID: id}
	if _, err := rt.Store.Create(ctx, key, nil); err != nil && !errors.Is(err, session.ErrExists) {
		return key, err
	}
	dir := rt.File.Artifacts.Dir
	if dir == "" {
		return key, nil
	}
	root, err := os.OpenRoot(rt.File.path(dir)) // links do not lead out of it
	if err != nil {
		return key, bad(abi.ConfigInvalid, "", "%s: %v", rt.File.at("artifacts.dir"), err)
	}
	defer root.Close()
	return key, fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if err := session.ValidArtifactName(name); err != nil {
			return bad(abi.ConfigInvalid, "rename the file", "%s: %v", rt.File.at("artifacts.dir"), err)
		}
		data, err := fs.ReadFile(root.FS(), name)
		if err != nil {
			return fmt.Errorf("artifact %s: %w", name, err)
		}
		part := partOf(name, data)
		kept, err := rt.artifacts.Load(ctx, key, name, 0)
		if err == nil && reflect.DeepEqual(kept, part) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err = rt.artifacts.Save(ctx, key, name, part)
		return err
	})
}

// partOf is a file as content: text if it is UTF-8 and its name says text.
func partOf(name string, data []byte) *genai.Part {
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) {
	case ".csv", ".txt", ".md", ".json", ".log", ".yaml", "":
		if utf8.Valid(data) {
			return genai.NewPartFromText(string(data))
		}
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	return genai.NewPartFromBytes(data, kind)
}
