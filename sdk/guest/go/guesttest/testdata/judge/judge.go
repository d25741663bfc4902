// Package judge is a guard that says what a question tells it to, natively and as a
// module.
package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Plugin is what the table asks.
var Plugin = guest.Plugin{
	Name: "judge", Version: "1.0.0", Requests: []string{"log", "kv read,write"},
	Exports: []guest.Export{guest.Guard[Settings]{
		Name: "judge", Phases: []guest.Phase{guest.PhaseCall, guest.PhaseResult, guest.PhaseMessage}, Mutates: []guest.Phase{guest.PhaseResult},
		Check: check, Judge: judge,
	}},
}

// Settings are checked by their schema and by check.
type Settings struct {
	Most int    `json:"most,omitempty" min:"1" max:"9" default:"2"`
	Word string `json:"word,omitempty" enum:"a,b"`
}

func check(s Settings) error {
	if s.Word == "b" && s.Most < 5 {
		return errors.New("b needs 5 and more")
	}
	return nil
}

func judge(q *guest.Question, s Settings) guest.Verdict {
	document := q.Judged()
	what, _ := document.Text("say")
	switch what {
	case "deny":
		return guest.Deny("no_way", "because", guest.Why{Rule: "r", At: "/say", Saw: "deny"})
	case "deny with a bad code":
		return guest.Deny("No Way", "because")
	case "deny at length":
		return guest.Deny("no_way", strings.Repeat("x", 1000))
	case "confirm":
		return guest.Confirm("Sure?")
	case "narrow":
		return guest.Narrow("log")
	case "narrow to what is no capability":
		return guest.Narrow("fly")
	case "rewrite":
		return guest.Rewrite(map[string]any{"clean": true})
	case "rewrite to what is no JSON":
		return guest.Rewrite(make(chan int))
	case "rewrite to a list":
		return guest.Rewrite([]int{1})
	case "hold":
		return guest.AllowBut(5)
	case "hold too much":
		return guest.AllowBut(8193)
	case "nothing":
		return guest.Verdict{}
	case "another ruling":
		return guest.Verdict{Ruling: "perhaps"}
	case "panic":
		panic("broken")
	case "time":
		return guest.Deny("now", fmt.Sprint(q.Now.UTC().Format(time.RFC3339Nano), " ", time.Now().UTC().Format(time.RFC3339Nano)))
	case "who":
		return guest.Deny("who", fmt.Sprint(q.User.ID, q.Agent, q.Session, q.Run, q.Step, q.Tool.Name, q.Tool.Known, q.Tool.Effects, q.Grants, s.Most, s.Word))
	case "count":
		count, added, err := q.KV().Add("n", 1, int64(s.Most), time.Minute)
		switch {
		case err != nil:
			return guest.Deny("no_count", err.Error())
		case !added:
			return guest.Deny("too_many", fmt.Sprint(count))
		}
		return guest.Allow()
	case "keep":
		var v json.RawMessage
		if err := q.KV().Set(strings.Repeat("k", 300), 1, 0); err == nil {
			return guest.Allow()
		}
		_, err := q.KV().Get("n", &v)
		return guest.Deny("kept", fmt.Sprint(string(v), err))
	case "wait":
		time.Sleep(time.Second)
		return guest.Allow()
	}
	return guest.Allow()
}
