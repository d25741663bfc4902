package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// busy is how long a transaction waits for one of another process.
	busy = 10 * time.Second
	// readers is how many reads of one process go on at the same time.
	readers = 4
)

// A Store is a session.Store in one file. It is safe for concurrent use, by
// several processes too. A write that another process holds up for more than
// 10 s fails, and has no effect.
type Store struct {
	write *sql.DB // has one connection, which begins by taking the lock
	read  *sql.DB
}

// Open opens the store in a file, which it makes, for its owner only, if it is
// not there. The folder must be there. It is an error if the file is another
// kind of database, or was written by a newer version of this package: such a
// file is not touched. An older one is brought up to date. Whoever opens a
// store closes it.
func Open(path string) (*Store, error) {
	s, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("session store %s: %w", path, err)
	}
	return s, nil
}

func open(path string) (*Store, error) {
	if path == "" {
		return nil, errors.New("no path")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	s := &Store{}
	if s.write, err = sql.Open("sqlite", source(path, "_txlock", "immediate")); err != nil {
		return nil, err
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = sql.Open("sqlite", source(path, "_query_only", "true")); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	if err := s.prepare(context.Background()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close frees the connections. Calls in progress end first; later ones fail.
func (s *Store) Close() error {
	return errors.Join(s.read.Close(), s.write.Close()) // the last to close cleans up, and readers cannot
}

// source is what the driver needs to know of a file.
func source(path, key, value string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	q := url.Values{"_busy_timeout": {strconv.FormatInt(busy.Milliseconds(), 10)}, "_pragma": {"synchronous(full)", "foreign_keys(on)"}, key: {value}}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// creating serialises createFile: closing a file drops the locks that the process
// has on it, so no connection may be open yet.
var creating sync.Mutex

// createFile makes an empty file that only its owner can read. SQLite gives its
// log the same mode.
func createFile(path string) error {
	creating.Lock()
	defer creating.Unlock()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// update runs f in a transaction that has the file to itself from its beginning,
// so that what f reads is still true when it writes. f's error undoes everything.
func (s *Store) update(ctx context.Context, f func(*sql.Tx) error) error {
	return within(ctx, s.write, f)
}

// view runs f on one state of the file.
func (s *Store) view(ctx context.Context, f func(*sql.Tx) error) error {
	return within(ctx, s.read, f)
}

func within(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // the error that matters is err; the driver drops a connection it cannot roll back
		return err
	}
	return tx.Commit()
}
