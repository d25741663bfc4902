package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"syscall"
	"time"
)

// An env is all that a command may know of the process it runs in. Commands open
// files; nothing else in this package asks package os for anything.
type env struct {
	args   []string // without the program's name
	stdin  input
	stdout stream
	stderr stream
	getenv func(string) string
	dir    string // the working directory
	cache  func() (string, error)
	self   func() (string, error) // the program's own file
	now    func() time.Time
	pause  func(context.Context)  // what --watch does between looking for changes, until ctx ends; nil: it waits for watchEvery
	user   func() (string, error) // who runs the process

	color    string    // the flag --color
	progress *progress // on stderr
}

// An input is standard input.
type input struct {
	io.Reader
	terminal bool
}

// A stream is standard output or standard error.
type stream struct {
	io.Writer
	terminal bool
}

// processEnv returns the env of this process.
func processEnv() *env {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	return &env{
		args:   os.Args[1:],
		stdin:  input{os.Stdin, isTerminal(os.Stdin)},
		stdout: stream{os.Stdout, isTerminal(os.Stdout)},
		stderr: stream{os.Stderr, isTerminal(os.Stderr)},
		getenv: os.Getenv,
		dir:    dir,
		cache:  os.UserCacheDir,
		self:   os.Executable,
		now:    time.Now,
		user:   osUser,
	}
}

// osUser returns the login name of who runs the process.
func osUser() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return u.Username, nil
}

// untilInterrupted returns a context that ends with the first interrupt. A second
// one ends the process.
func untilInterrupted() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// path returns where a file that the user named is.
func (e *env) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(e.dir, name)
}

// cacheDir returns the directory of one kind of things that can be made again,
// below the user's cache directory. It may not exist yet.
func (e *env) cacheDir(kind string) (string, error) {
	dir, err := e.cache()
	if err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	return filepath.Join(dir, "sandboxd", kind), nil
}

// maxInput is the most that is read of a file or of standard input.
const maxInput = 64 << 20

// readFile reads a file that the user named, or standard input for "-". Errors
// name it as the user did.
func (e *env) readFile(name string) ([]byte, error) {
	if name == "-" {
		return readAll("standard input", e.stdin)
	}
	f, err := os.Open(e.path(name))
	if err != nil {
		return nil, &fileError{name, err}
	}
	defer f.Close()
	return readAll(name, f)
}

func readAll(name string, r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, &fileError{name, err}
	}
	if len(data) > maxInput {
		return nil, &fileError{name, fmt.Errorf("more than %s", size(maxInput))}
	}
	return data, nil
}

// writeFile writes a file that the user named, all of it or nothing.
func (e *env) writeFile(name string, data []byte) error {
	path := e.path(name)
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return &fileError{name, err}
	}
	defer os.Remove(f.Name()) // in vain once it is renamed
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return &fileError{name, err}
	}
	return nil
}
