package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// ErrChain matches every [*ChainError].
var ErrChain = errors.New("audit chain broken")

// A ChainError names the first line of a log that is not as the log wrote it.
type ChainError struct {
	Line int    // counted from 1
	What string // what is wrong with it
}

func (e *ChainError) Error() string { return fmt.Sprintf("audit log line %d: %s", e.Line, e.What) }

// Is makes every ChainError match [ErrChain].
func (e *ChainError) Is(target error) bool { return target == ErrChain }

// A Summary describes a log.
type Summary struct {
	Records int
	First   time.Time // of the first record; zero without records
	Last    time.Time // of the last record
	Head    string    // digest of the last line, see the package comment; [Genesis] without records
}

// Verify reads a whole log and checks every line. At the first broken line it
// stops with a [*ChainError] and the summary of what comes before. A last line
// without an end is broken, see [Repair]. An error of r is returned as it is.
func Verify(r io.Reader) (Summary, error) {
	s := Summary{Head: Genesis}
	sc := scanner{r: bufio.NewReader(r), at: start()}
	for {
		record, err := sc.next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if s.Records == 0 {
			s.First = record.Time
		}
		s.Records++
		s.Last, s.Head = record.Time, sc.at.head
	}
}

// Scan yields the records of a log in order, each checked as [Verify] does. After
// an error, which comes with the zero Record, it ends.
func Scan(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		sc := scanner{r: bufio.NewReader(r), at: start()}
		for {
			record, err := sc.next()
			if err == io.EOF {
				return
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// A scanner reads lines and checks that each continues the chain.
type scanner struct {
	r    *bufio.Reader
	at   chain
	size int64 // bytes of good lines read
}

// next returns the next record, io.EOF at the end, a *ChainError for a broken
// line, or an error of the reader.
func (s *scanner) next() (Record, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return Record{}, s.broken("exceeds %d bytes", maxLine)
		}
		if err == nil {
			break
		}
		if err == io.EOF && len(line) == 0 {
			return Record{}, io.EOF
		}
		if err == io.EOF {
			return Record{}, s.broken("no end: %d bytes from byte %d", len(line), s.size)
		}
		if err != bufio.ErrBufferFull {
			return Record{}, fmt.Errorf("audit log: %w", err)
		}
	}
	line = line[:len(line)-1]
	r, what := decode(line)
	switch {
	case what != "":
		return Record{}, s.broken("%s", what)
	case r.Seq != s.at.seq+1:
		return Record{}, s.broken("seq %d: want %d", r.Seq, s.at.seq+1)
	case r.Prev != s.at.head:
		return Record{}, s.broken("prev is not the digest of the line before")
	}
	s.at = chain{r.Seq, digest(line)}
	s.size += int64(len(line)) + 1
	return r, nil
}

func (s *scanner) broken(format string, args ...any) error {
	return &ChainError{Line: int(s.at.seq) + 1, What: fmt.Sprintf(format, args...)}
}

// decode reads one line and checks all that can be checked without its
// neighbours. It accepts only the very bytes that seal writes.
func decode(line []byte) (r Record, what string) {
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, "no record"
	}
	hash := r.Hash
	r.Time = r.Time.UTC()
	bounded := r
	bound(&bounded)
	if r.Action == "" || bounded != r {
		return Record{}, "no record that a log writes"
	}
	again, _, err := r.seal(nil)
	if err != nil {
		return Record{}, "no record that a log writes"
	}
	if hash != r.Hash {
		return Record{}, "hash does not match"
	}
	if !bytes.Equal(again, line) {
		return Record{}, "not in the form that a log writes"
	}
	return r, ""
}
