package authortest

import "time"

// A Result is how one test ended.
type Result struct {
	File     string    `json:"file"` // as named
	Line     int       `json:"line"`
	Name     string    `json:"name"`
	OK       bool      `json:"ok"`
	Problems []Problem `json:"problems,omitempty"` // empty if OK
	WallUS   int64     `json:"wall_us"`            // of the guest's calls together
	Fuel     int64     `json:"fuel"`               // likewise
	Calls    int       `json:"calls"`              // of the guest
}

// A Problem is one way in which a test got something else than it wants. Texts are
// not fit for a terminal: what a guest said may be in them.
type Problem struct {
	What string `json:"what"` // such as "verdict"
	Want string `json:"want,omitempty"`
	Got  string `json:"got"`
}

func (r *Result) problem(what, want, got string) {
	r.Problems = append(r.Problems, Problem{what, want, got})
}

// GuardWall is the most time that a guard may take in a test. See the comment of
// the package.
const GuardWall = 20 * time.Second
