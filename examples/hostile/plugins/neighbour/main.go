// Command neighbour is a plugin like any other. Its tools answer as if nothing
// happened around them, and one of them counts what did.
package main

import (
	"fmt"
	"strings"
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "neighbour", Version: "1.1.0",
		Requests: []string{"clock"},
		Exports: []guest.Export{
			guest.Tool[Terms, Sum]{Name: "add", Description: "Adds numbers.", Effects: guest.None, Handle: add},
			guest.Tool[struct{}, Moment]{Name: "now", Description: "Says what time it is.", Effects: guest.None, Handle: now},
			guest.Tool[Report, Tally]{Name: "tally", Description: "Says how many attempts ended as they should.", Effects: guest.None, Handle: tally},
		},
	})
}

func main() {}

// Terms are what to add.
type Terms struct {
	Numbers []int `json:"numbers"`
}

// Sum is their sum.
type Sum struct {
	Sum int `json:"sum"`
}

func add(_ *guest.Call, in Terms) (Sum, error) {
	var s Sum
	for _, n := range in.Numbers {
		s.Sum += n
	}
	return s, nil
}

// Moment is a time.
type Moment struct {
	MS int64 `json:"ms" doc:"milliseconds since 1970"`
}

func now(*guest.Call, struct{}) (Moment, error) { return Moment{time.Now().UnixMilli()}, nil }

// Report is what was tried.
type Report struct {
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one attempt, and its end.
type Attempt struct {
	Name  string `json:"name"`
	Tried string `json:"tried" doc:"what it tried"`
	Want  string `json:"want" doc:"what stands in the end of an attempt that was stopped"`
	Got   string `json:"got" doc:"its end"`
	From  int64  `json:"from" doc:"when it began, in milliseconds"`
	To    int64  `json:"to" doc:"when something else began after it"`
}

// Tally says what became of them.
type Tally struct {
	Lines     string `json:"lines" doc:"one for each attempt"`
	Contained int    `json:"contained"`
	Of        int    `json:"of"`
}

func tally(_ *guest.Call, in Report) (Tally, error) {
	var t Tally
	var lines strings.Builder
	for _, a := range in.Attempts {
		word := "CAME THROUGH"
		if a.Want != "" && strings.Contains(a.Got, a.Want) {
			word = "contained"
			t.Contained++
		}
		t.Of++
		fmt.Fprintf(&lines, "%-9s %-12s %-44s %s, after %.2f s\n", a.Name, word, a.Tried, a.Got, float64(a.To-a.From)/1000)
	}
	t.Lines = lines.String()
	return t, nil
}
