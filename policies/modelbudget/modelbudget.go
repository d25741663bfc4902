// Package modelbudget is the first-party guard that bounds what models are asked:
// the size of one request, and the tokens and requests of a run, session or day. Before
// a request its tokens are estimated, rather high; the reported usage corrects that
// afterwards, and an answer that reports none is charged the estimate.
package modelbudget

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings are the bounds. A zero bound is none.
type Settings struct {
	Request Request `json:"request,omitzero" doc:"bounds of one request"`
	Per     Per     `json:"per,omitzero" doc:"bounds of many"`
}

// Request bounds one request.
type Request struct {
	Bytes  int64 `json:"bytes,omitempty" doc:"of the request as JSON, attachments included" min:"0" max:"1000000000000"`
	Tokens int64 `json:"tokens,omitempty" doc:"estimated: bytes / 3, rounded up" min:"0" max:"1000000000000"`
	Images int64 `json:"images,omitempty" doc:"attachments of any kind" min:"0" max:"1000000000000"`
	Tools  int64 `json:"tools,omitempty" doc:"tools that are offered" min:"0" max:"1000000000000"`
	Turns  int64 `json:"turns,omitempty" doc:"contents of the conversation" min:"0" max:"1000000000000"`
}

// Per bounds the requests of a stretch of time.
type Per struct {
	Run     Budget `json:"run,omitzero" doc:"of one run"`
	Session Budget `json:"session,omitzero" doc:"of one session"`
	Day     Budget `json:"day,omitzero" doc:"of one user on one day, UTC"`
}

// A Budget is what may be used up.
type Budget struct {
	Tokens   int64 `json:"tokens,omitempty" doc:"asked and answered, of all requests" min:"0" max:"1000000000000"`
	Requests int64 `json:"requests,omitempty" doc:"how many" min:"0" max:"1000000000000"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "model-budget", Phases: []guest.Phase{guest.PhaseRequest, guest.PhaseResponse}, Judge: Judge}
}

// Judge judges one request, or corrects the account by a response.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if q.Phase == guest.PhaseResponse {
		return correct(q, s)
	}
	raw, err := q.Judged().MarshalJSON()
	if err != nil {
		panic(err) // which denies; the host never asks about what is no JSON
	}
	size := measure(raw, &q.Request)
	for _, b := range []struct {
		code    string
		is, may int64
	}{
		{"request_bytes", size.Bytes, s.Request.Bytes}, {"request_tokens", size.Tokens, s.Request.Tokens}, {"request_images", size.Images, s.Request.Images},
		{"request_tools", size.Tools, s.Request.Tools}, {"request_turns", size.Turns, s.Request.Turns},
	} {
		if b.may > 0 && b.is > b.may {
			return guest.Deny(b.code, "the request to the model is larger than allowed", guest.Why{Rule: b.code, Saw: fmt.Sprint(b.is)})
		}
	}
	for _, sc := range s.scopes(q) {
		if sc.budget.Requests > 0 {
			_, added, err := q.KV().Add(sc.key("requests"), 1, sc.budget.Requests, sc.ttl)
			if err != nil {
				return views.Unavailable(err)
			}
			if !added {
				return guest.Deny(sc.name+"_requests", "the model was asked as often as it may be", guest.Why{Rule: sc.name + "_requests"})
			}
		}
		if sc.budget.Tokens > 0 {
			_, added, err := q.KV().Add(sc.key("tokens"), size.Tokens, sc.budget.Tokens, sc.ttl)
			if err != nil {
				return views.Unavailable(err)
			}
			if !added {
				return guest.Deny(sc.name+"_tokens", "the tokens that may be used are used up", guest.Why{Rule: sc.name + "_tokens", Saw: fmt.Sprint(size.Tokens)})
			}
		}
	}
	if !s.counts() {
		return guest.Allow()
	}
	if err := q.KV().Set(pending(q), size.Tokens, 24*time.Hour); err != nil {
		return views.Unavailable(err)
	}
	return guest.Allow()
}

// correct replaces the estimate of the request by what the response reports.
func correct(q *guest.Question, s Settings) guest.Verdict {
	if q.Response.Partial || !s.counts() {
		return guest.Allow()
	}
	response := q.Judged()
	var used json.Number
	if there, err := response.Get("/usageMetadata/totalTokenCount", &used); err != nil || !there {
		return guest.Allow() // the estimate stays
	}
	tokens, err := used.Int64()
	if err != nil || tokens <= 0 || tokens > maxTokens {
		return guest.Allow()
	}
	var estimate int64
	found, err := q.KV().Get(pending(q), &estimate)
	if err != nil {
		return views.Unavailable(err)
	}
	if !found {
		return guest.Allow() // corrected already
	}
	for _, sc := range s.scopes(q) {
		if sc.budget.Tokens == 0 || tokens == estimate {
			continue
		}
		if _, _, err := q.KV().Add(sc.key("tokens"), tokens-estimate, maxTokens, sc.ttl); err != nil {
			return views.Unavailable(err)
		}
	}
	if err := q.KV().Delete(pending(q)); err != nil {
		return views.Unavailable(err)
	}
	return guest.Allow()
}

// maxTokens is more than anybody uses.
const maxTokens = 1_000_000_000_000_000

// measure returns what a request is in each measure.
func measure(raw []byte, r *guest.ModelRequest) Request {
	out := Request{Bytes: int64(len(raw)), Tokens: int64(len(raw)+2) / 3, Turns: int64(len(r.Contents))}
	out.Images = int64(strings.Count(string(raw), `"inlineData":`) + strings.Count(string(raw), `"fileData":`))
	tools := map[string]any{}
	if there, err := r.Config.Get("", &tools); err == nil && there {
		views.KeepDeclared(map[string]any{"config": tools}, func(views.Declared) bool {
			out.Tools++
			return true
		})
	}
	return out
}

// A scope is a budget and what is counted for it.
type scope struct {
	name   string
	budget Budget
	ttl    time.Duration
	whose  []string
}

func (s *scope) key(what string) string {
	return views.Key(append([]string{what, s.name}, s.whose...)...)
}

func (s *Settings) scopes(q *guest.Question) []scope {
	return []scope{
		{"run", s.Per.Run, 7 * 24 * time.Hour, []string{q.User.ID, q.Session, q.Run}},
		{"session", s.Per.Session, 366 * 24 * time.Hour, []string{q.User.ID, q.Session}},
		{"day", s.Per.Day, 72 * time.Hour, []string{q.User.ID, q.Now.UTC().Format(time.DateOnly)}},
	}
}

// counts reports whether there is an account of tokens.
func (s *Settings) counts() bool {
	return s.Per.Run.Tokens > 0 || s.Per.Session.Tokens > 0 || s.Per.Day.Tokens > 0
}

// pending is the key of the estimate of a request that was not answered yet.
func pending(q *guest.Question) string {
	return views.Key("pending", q.User.ID, q.Session, q.Run, q.Agent, fmt.Sprint(q.Step))
}
