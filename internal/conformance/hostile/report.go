package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Report is how the cases of a corpus did, by group.
type Report struct {
	Results []Result
}

// count returns how many cases passed and failed, in one group or, for "", in all.
func (r *Report) count(group string) (passed, failed int) {
	for _, x := range r.Results {
		switch {
		case group != "" && x.Group != group:
		case x.Passed:
			passed++
		default:
			failed++
		}
	}
	return passed, failed
}

// Failed returns how many cases failed.
func (r *Report) Failed() int {
	_, failed := r.count("")
	return failed
}

// A groupCount is how the cases of a group did.
type groupCount struct {
	Group  string `json:"group"`
	Passed int    `json:"passed"`
	Failed int    `json:"failed"`
}

func (r *Report) groups() []groupCount {
	var all []groupCount
	for i, x := range r.Results {
		if i == 0 || x.Group != r.Results[i-1].Group {
			passed, failed := r.count(x.Group)
			all = append(all, groupCount{x.Group, passed, failed})
		}
	}
	return all
}

// WriteText writes a line for each case that failed, with its name and the first
// difference between tabs, a line for each group, and a last line with the counts.
func (r *Report) WriteText(w io.Writer) error {
	for _, x := range r.Results {
		if x.Passed {
			continue
		}
		if _, err := fmt.Fprintf(w, "FAIL\t%s\t%s\n", x.ID, visible(x.Difference)); err != nil {
			return err
		}
	}
	for _, g := range r.groups() {
		if _, err := fmt.Fprintf(w, "group\t%s\t%d passed, %d failed\n", g.Group, g.Passed, g.Failed); err != nil {
			return err
		}
	}
	passed, failed := r.count("")
	_, err := fmt.Fprintf(w, "%d passed, %d failed\n", passed, failed)
	return err
}

// WriteJSON writes the report as one document on one line.
func (r *Report) WriteJSON(w io.Writer) error {
	passed, failed := r.count("")
	return json.NewEncoder(w).Encode(struct {
		Format int          `json:"format"`
		Passed int          `json:"passed"`
		Failed int          `json:"failed"`
		Groups []groupCount `json:"groups"`
		Cases  []Result     `json:"cases"`
	}{1, passed, failed, r.groups(), r.Results})
}

// visible returns a text as one line that hides nothing.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if abi.Hidden(r) || strings.ContainsRune("\t\n\u2028\u2029", r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
