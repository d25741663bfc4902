package host

import (
	"fmt"
	"time"
)

const (
	firstDenial = time.Minute
	longDenial  = time.Hour
	maxDenials  = 1024 // remembered; beyond, those that end first are forgotten
)

// denials remembers modules that ended the compiler, by the digest of the code, so
// that nobody who asks again and again makes it compile them again and again. It
// is kept in memory only, and belongs to the holder of the engine's turn to compile.
type denials struct {
	now  func() time.Time
	seen map[Digest]denial
}

type denial struct {
	times int
	until time.Time
	last  Reason
}

func newDenials() denials { return denials{time.Now, map[Digest]denial{}} }

// check refuses a module whose time has not come.
func (d *denials) check(of, from Digest) error {
	was, ok := d.seen[from]
	left := was.until.Sub(d.now())
	if !ok || left <= 0 {
		return nil
	}
	return &RejectError{of, []Reason{{was.last.Code,
		fmt.Sprintf("%s; failed %d times, not tried again for %v", was.last.Text, was.times, left.Round(time.Second))}}}
}

// add notes a failure and returns it as an error. Every time in a row doubles the
// wait.
func (d *denials) add(of, from Digest, why Reason) error {
	now := d.now()
	if len(d.seen) >= maxDenials {
		first := from
		for key, was := range d.seen {
			if first == from || was.until.Before(d.seen[first].until) {
				first = key
			}
		}
		delete(d.seen, first)
	}
	was := d.seen[from]
	wait := min(firstDenial<<min(was.times, 16), longDenial)
	d.seen[from] = denial{was.times + 1, now.Add(wait), why}
	return &RejectError{of, []Reason{why}}
}

// forget drops what is known of a module.
func (d *denials) forget(from Digest) { delete(d.seen, from) }
