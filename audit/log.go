package audit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
)

// A Log appends records to a file. It is safe for concurrent use, and on Unix
// several processes may append to one file: each append takes a lock on the file
// (flock), reads and checks what others appended since, and goes on from there.
// Elsewhere a file PATH.lock lets in one Log at a time.
type Log struct {
	path    string
	file    *os.File
	release func() error // gives up what Open claimed

	turn chan struct{} // holds a value while someone appends or closes; guards:
	at   chain
	size int64
}

// Open opens the log at path to append to it, and creates it with mode 0600 if
// there is none. It checks the last line only; [Verify] checks all of them. A
// file that others than its owner may write is refused.
//
// A last line without an end, as a crash or a full disk leaves it, is refused
// with a [*ChainError] that names line and byte: a log never mends itself. The
// action it describes was refused or never begun, since its Append did not
// return. [Repair] cuts it off.
func Open(path string) (*Log, error) {
	l, at, end, err := open(path)
	if err != nil {
		return nil, err
	}
	if end != l.size {
		l.Close()
		return nil, &ChainError{Line: int(at.seq) + 1, What: fmt.Sprintf("no end: %d bytes from byte %d", l.size-end, end)}
	}
	l.at = at
	return l, nil
}

// Repair cuts off a last line that has no end and appends a record of that, with
// the action "audit.repair", the actor, and in why the count and digest of the
// bytes that were cut. It returns their count; with 0 it changed nothing. Any
// other damage is a [*ChainError], which nothing here repairs.
func Repair(ctx context.Context, path, actor string) (int64, error) {
	l, _, _, err := open(path)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	if err := lock(ctx, l.file); err != nil {
		return 0, l.wrap(err)
	}
	// Another process may have appended, or repaired, since open looked.
	at, end, size, err := tail(l.file)
	if l.size = size; err != nil || end == l.size {
		unlock(l.file)
		return 0, err
	}
	torn := make([]byte, l.size-end)
	if _, err := l.file.ReadAt(torn, end); err != nil {
		unlock(l.file)
		return 0, l.wrap(err)
	}
	err = l.file.Truncate(end)
	if err == nil {
		err = l.file.Sync()
	}
	unlock(l.file)
	if err != nil {
		return 0, l.wrap(err)
	}
	l.at, l.size = at, end
	return int64(len(torn)), l.Append(ctx, Record{
		Action: "audit.repair", Actor: actor, Target: path,
		Why: fmt.Sprintf("cut %d bytes of line %d from byte %d, sha256 %s", len(torn), at.seq+1, end, digest(torn)),
	})
}

// Append writes r as the next line and returns when it is on disk. ctx bounds
// the waiting for others that append; a ctx that is done does not keep a record
// from being written where there is nothing to wait for, because what happened
// must be recorded although a call was cancelled.
//
// After an error the record is not in the log, and the next Append may succeed:
// what was written of it is taken back, and if that fails too, every Append is
// refused until [Repair]. A file that was replaced, cut or changed by someone
// else is an error, too.
func (l *Log) Append(ctx context.Context, r Record) error {
	select {
	case l.turn <- struct{}{}:
	default:
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return l.wrap(context.Cause(ctx))
		}
	}
	defer func() { <-l.turn }()
	if l.file == nil {
		return l.wrap(os.ErrClosed)
	}
	if err := lock(ctx, l.file); err != nil {
		return l.wrap(err)
	}
	defer unlock(l.file)
	if err := l.catchUp(); err != nil {
		return err
	}
	_, line, at, err := l.at.add(r, nil)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err = l.file.Write(line); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		if undo := l.file.Truncate(l.size); undo != nil {
			return l.wrap(fmt.Errorf("%w; the line could not be taken back: %v", err, undo))
		}
		return l.wrap(err)
	}
	l.at, l.size = at, l.size+int64(len(line))
	return nil
}

// Close waits for a running Append and closes the file. Later appends fail with
// [os.ErrClosed].
func (l *Log) Close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.file == nil {
		return l.wrap(os.ErrClosed)
	}
	err := l.file.Close()
	l.file = nil
	if other := l.release(); err == nil {
		err = other
	}
	if err != nil {
		return l.wrap(err)
	}
	return nil
}

// open opens the file and finds the end of its last whole line.
func open(path string) (l *Log, at chain, end int64, err error) {
	l = &Log{path: path, turn: make(chan struct{}, 1)}
	if l.release, err = claim(path); err != nil {
		return nil, at, 0, l.wrap(err)
	}
	if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		l.release()
		return nil, at, 0, l.wrap(err)
	}
	defer func() {
		if err != nil {
			l.Close()
			l = nil
		}
	}()
	info, err := l.file.Stat()
	if err != nil {
		return l, at, 0, l.wrap(err)
	}
	if err := checkMode(info); err != nil {
		return l, at, 0, l.wrap(err)
	}
	// The lock keeps out a line that another process is just writing.
	if err := lock(context.Background(), l.file); err != nil {
		return l, at, 0, l.wrap(err)
	}
	defer unlock(l.file)
	if info.Size() == 0 {
		if err := syncDir(path); err != nil {
			return l, at, 0, l.wrap(err)
		}
	}
	at, end, l.size, err = tail(l.file)
	return l, at, end, err
}

// tail returns the end of the chain in f, the offset at which the last whole
// line ends, and the size of f.
func tail(f *os.File) (at chain, end, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return at, 0, 0, fmt.Errorf("audit log: %w", err)
	}
	size = info.Size()
	from := max(0, size-2*maxLine)
	buf := make([]byte, size-from)
	if _, err := io.ReadFull(io.NewSectionReader(f, from, size-from), buf); err != nil {
		return at, 0, size, fmt.Errorf("audit log: %w", err)
	}
	last := bytes.LastIndexByte(buf, '\n')
	if last < 0 && from == 0 {
		return start(), 0, size, nil
	}
	if last >= 0 {
		line := buf[bytes.LastIndexByte(buf[:last], '\n')+1 : last]
		if r, what := decode(line); what == "" {
			return chain{r.Seq, digest(line)}, from + int64(last) + 1, size, nil
		}
	}
	// Something is wrong near the end; reading from the start tells where.
	if _, err := Verify(io.NewSectionReader(f, 0, size)); err != nil {
		return at, 0, size, err
	}
	return at, 0, size, fmt.Errorf("audit log: last line: %w", ErrChain)
}

// catchUp reads what was appended by others since this Log last looked. The
// caller holds the lock.
func (l *Log) catchUp() error {
	info, err := l.file.Stat()
	if err != nil {
		return l.wrap(err)
	}
	if there, err := os.Stat(l.path); err != nil || !os.SameFile(info, there) {
		return l.wrap(fmt.Errorf("the file was moved or replaced: %w", ErrChain))
	}
	switch size := info.Size(); {
	case size == l.size:
		return nil
	case size < l.size:
		return l.wrap(fmt.Errorf("the file was cut from %d to %d bytes: %w", l.size, size, ErrChain))
	}
	sc := scanner{r: bufio.NewReader(io.NewSectionReader(l.file, l.size, math.MaxInt64-l.size)), at: l.at, size: l.size}
	for {
		_, err := sc.next()
		if err == io.EOF {
			l.at, l.size = sc.at, sc.size
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *Log) wrap(err error) error { return fmt.Errorf("audit log %s: %w", l.path, err) }
