// Package kit is a plugin that does what a table of tests tells it, natively and as a
// module.
package kit

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Plugin is what the table calls.
var Plugin = guest.Plugin{
	Name: "kit", Version: "1.0.0",
	Requests: []string{"state read,write session:*", "state read,write user:*", "state read,write app:*", "state read,write temp:*", "artifact read,write *", "artifact read,write user:*",
		"kv read,write", "memory search", "emit", "log", "confirm", "transfer", "escalate", "skip-summary", "clock",
		"http GET,POST **", "http GET private **", "http GET http://**", "http GET private 127.0.0.1", "secret use * at **"},
	Exports: []guest.Export{
		guest.Tool[Script, []any]{Name: "script", Effects: guest.None, Handle: script},
		guest.Tool[Typed, Answer]{Name: "typed", Effects: guest.None, Handle: typed},
		guest.Tool[guest.Document, any]{Name: "echo", Effects: guest.None, Handle: echo},
		guest.Tool[struct{}, any]{Name: "pay", Confirm: true, Handle: func(c *guest.Call, _ struct{}) (any, error) { return c.Confirmation(), nil }},
		guest.Stream[Script, any]{Name: "lines", Effects: guest.None, Handle: lines},
		guest.Job[Script, *Answer]{Name: "job", Effects: guest.Idempotent, Start: job},
		guest.Hooks{BeforeTool: beforeTool, AfterTool: afterTool, OnUserMessage: onUserMessage, AfterRun: afterRun},
	},
}

// A Script is what a call does, one step after the other.
type Script struct {
	Steps []Step `json:"steps" max:"2000"`
}

// A Step is one host call, or one way to end.
type Step struct {
	Do     string              `json:"do"`
	Key    string              `json:"key,omitempty"`
	Value  json.RawMessage     `json:"value,omitempty"`
	Text   string              `json:"text,omitempty"`
	N      int64               `json:"n,omitempty"`
	Most   int64               `json:"most,omitempty"`
	TTL    int64               `json:"ttl,omitempty" doc:"milliseconds"`
	Times  int                 `json:"times,omitempty" doc:"how often; 0 is once"`
	Repeat int                 `json:"repeat,omitempty" doc:"how often the text is said in one"`
	Header map[string]string   `json:"header,omitempty"`
	Use    []map[string]string `json:"use,omitempty" doc:"secrets"`
}

// Typed is checked by the schema that it makes.
type Typed struct {
	Place string   `json:"place" min:"1" max:"8" pattern:"^[A-Zö]"`
	Days  int      `json:"days,omitempty" min:"1" max:"7" default:"3"`
	Unit  string   `json:"unit,omitempty" enum:"C,F"`
	Ratio *float64 `json:"ratio,omitempty" min:"0.5"`
	Tags  []string `json:"tags,omitempty" max:"2"`
	Say   string   `json:"say,omitempty"`
}

// Answer is checked likewise.
type Answer struct {
	Say string `json:"say" max:"5"`
	N   int    `json:"n,omitempty"`
}

func typed(_ *guest.Call, in Typed) (Answer, error) {
	return Answer{Say: in.Say + in.Unit, N: in.Days}, nil
}

func echo(_ *guest.Call, in guest.Document) (any, error) {
	var v json.RawMessage
	found, err := in.Get("value", &v)
	if err != nil || !found {
		return nil, err
	}
	return v, nil
}

func lines(c *guest.Call, in Script, emit func(any) error) error {
	for _, s := range in.Steps {
		for range max(1, s.Times) {
			var chunk any = strings.Repeat(s.Text, max(1, s.Repeat))
			if s.Value != nil {
				chunk = s.Value
			}
			if err := emit(chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

func job(_ *guest.Call, in Script) (*Answer, error) {
	if len(in.Steps) == 0 {
		return nil, nil
	}
	return &Answer{Say: in.Steps[0].Text}, nil
}

func script(c *guest.Call, in Script) ([]any, error) {
	out := []any{}
	for _, s := range in.Steps {
		for i := range max(1, s.Times) {
			v, err := step(c, s, i)
			if _, ok := errors.AsType[end](err); ok {
				return nil, errors.Unwrap(err)
			}
			if err != nil {
				v = said(err)
			}
			if s.Times == 0 || err != nil {
				out = append(out, v)
			}
		}
	}
	return out, nil
}

// said is what a handler can know of an error.
func said(err error) any {
	out := map[string]any{"error": err.Error(), "denied": errors.Is(err, guest.ErrDenied), "missing": errors.Is(err, fs.ErrNotExist)}
	if e, ok := errors.AsType[*guest.HostError](err); ok {
		out["function"], out["code"], out["message"] = e.Function, e.Code, e.Message
	}
	return out
}

// end is the error that a script ends with.
type end struct{ error }

func (e end) Unwrap() error { return e.error }

func step(c *guest.Call, s Step, i int) (any, error) {
	key := strings.Replace(s.Key, "%", fmt.Sprint(i), 1)
	text := strings.Repeat(s.Text, max(1, s.Repeat))
	var value any = s.Value
	if s.Value == nil {
		value = text
	}
	ttl := time.Duration(s.TTL) * time.Millisecond
	var v json.RawMessage
	found := func(ok bool, err error) (any, error) {
		if !ok {
			return nil, err
		}
		return v, err
	}
	switch s.Do {
	case "get":
		return found(c.Get(key, &v))
	case "set":
		return nil, c.Set(key, value)
	case "artifacts":
		return c.Artifacts()
	case "artifact":
		r, err := c.Artifact(key)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		return []any{len(data), string(data[:min(len(data), 40)])}, err
	case "save":
		return c.SaveArtifact(key, string(s.Header["type"]), []byte(text))
	case "kv_get":
		return found(c.KV().Get(key, &v))
	case "kv_set":
		return nil, c.KV().Set(key, value, ttl)
	case "kv_delete":
		return nil, c.KV().Delete(key)
	case "kv_add":
		n, added, err := c.KV().Add(key, s.N, s.Most, ttl)
		return []any{n, added}, err
	case "memory":
		return c.SearchMemory(text)
	case "http":
		r := guest.Request{Method: s.Header["method"], URL: s.Key, Header: map[string]string{}}
		for name, value := range s.Header {
			if name != "method" {
				r.Header[name] = value
			}
		}
		if text != "" {
			r.Body = []byte(text)
		}
		for _, u := range s.Use {
			r.Secrets = append(r.Secrets, guest.UseSecret{Secret: u["secret"], Header: u["header"], Prefix: u["prefix"]})
		}
		res, err := c.HTTP(r)
		if err != nil {
			return nil, err
		}
		return []any{res.Status, res.Header, len(res.Body), string(res.Body[:min(len(res.Body), 80)])}, nil
	case "log":
		c.Log(guest.Level(s.Key), "%s", text)
		return nil, nil
	case "confirm":
		var payload any
		if s.Value != nil {
			payload = s.Value
		}
		return nil, c.AskConfirmation(text, payload)
	case "transfer":
		return nil, c.Transfer(text)
	case "escalate":
		return nil, c.Escalate()
	case "skip":
		return nil, c.SkipSummary()
	case "random":
		b := make([]byte, s.N)
		c.Random(b)
		return hex.EncodeToString(b[:min(len(b), 16)]), nil
	case "time":
		return time.Now().UTC().Format(time.RFC3339Nano), nil
	case "who":
		return []any{c.ID() != "", c.Config("unit"), c.Config("none"), c.Confirmation(), c.Agent(), c.Cause()}, nil
	case "say":
		return text, nil
	case "fail":
		return nil, end{guest.Fail(s.Key, "%s", text)}
	case "error":
		return nil, end{errors.New(text)}
	case "panic":
		panic(text)
	case "recover":
		func() {
			defer func() { _ = recover() }()
			for {
				_, _ = c.Get(key, &v)
			}
		}()
		return "goes on", nil
	case "apart":
		var err error
		done := make(chan bool)
		go func() {
			defer close(done)
			_, err = c.Get(key, &v)
		}()
		<-done
		return v, err
	case "wait":
		time.Sleep(ttl)
		return nil, nil
	}
	return nil, fmt.Errorf("no step %q", s.Do)
}

// beforeTool does what the arguments of a call say, in the tool of another plugin.
func beforeTool(c *guest.Call, t *guest.ToolCall) (any, error) {
	var in Script
	if found, err := t.Args.Get("steps", &in.Steps); err != nil || !found {
		return nil, err
	}
	out, err := script(c, in)
	if err != nil {
		return nil, err
	}
	if t.Args.Has("answer") {
		return map[string]any{"hook": out}, nil
	}
	t.Args.Set("hook", out)
	return nil, nil
}

func afterTool(_ *guest.Call, t *guest.ToolCall) (any, error) {
	if t.Result.Has("quiet") {
		return nil, nil
	}
	t.Result.Set("seen", t.Name)
	return nil, nil
}

func onUserMessage(c *guest.Call, m *guest.Content) (*guest.Content, error) {
	if len(m.Parts) == 0 {
		return nil, nil
	}
	if err := c.Set("session:said", m.Parts[0].Text); err != nil {
		return nil, err
	}
	m.Parts[0].Text += "!"
	return nil, nil
}

func afterRun(*guest.Call) error { return errors.New("over") }
