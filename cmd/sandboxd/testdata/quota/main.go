// Quota is a guard of the scripts: it lets each user call each tool a number of
// times an hour.
package main

import (
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "quota", Version: "1.0.0", Requests: []string{"kv write"},
		Exports: []guest.Export{guest.Guard[Settings]{Name: "quota", Phases: []guest.Phase{guest.PhaseCall}, Judge: judge}},
	})
}

func main() {}

// Settings are the operator's.
type Settings struct {
	Calls int64 `json:"calls" min:"0"`
}

func judge(q *guest.Question, s Settings) guest.Verdict {
	_, counted, err := q.KV().Add(q.User.ID+" "+q.Tool.Name, 1, s.Calls, time.Hour)
	if err != nil {
		return guest.Deny("no_count", "calls cannot be counted")
	}
	if !counted {
		return guest.Deny("quota", "no more calls this hour")
	}
	return guest.Allow()
}
