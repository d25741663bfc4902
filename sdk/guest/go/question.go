package guest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An asked is a question of the host: what its author sees of it, and what the
// answer is made with.
type asked struct {
	format                 int
	kind                   abi.Kind
	question               Question
	guard, nonce, document string
	now                    string
	settings               json.RawMessage
}

// readQuestion reads a question of the host, which is an [abi.Question]. It goes no
// further when it finds that the document is another, or in another format: what
// it returns says so.
func readQuestion(data []byte) (*asked, error) {
	a, r := &asked{}, newReader(data)
	err := r.object(func(name string) error {
		switch err := a.member(r, name); {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case name == "format" && a.format != abi.Version, name == "kind" && a.kind != abi.KindGuard:
			return errEnough
		}
		return nil
	})
	if err == errEnough {
		err = nil
	}
	return a, err
}

func (a *asked) member(r *reader, name string) (err error) {
	q := &a.question
	switch name {
	case "format":
		a.format, err = r.integer()
	case "kind":
		err = readText(r, &a.kind)
	case "guard":
		a.guard, err = r.str()
	case "phase":
		err = readText(r, &q.Phase)
	case "nonce":
		a.nonce, err = r.str()
	case "document_sha256":
		a.document, err = r.str()
	case "now":
		a.now, err = r.str()
	case "tenant":
		q.Tenant, err = r.str()
	case "app":
		q.App, err = r.str()
	case "agent":
		q.Agent, err = r.str()
	case "user":
		err = r.object(func(name string) (err error) {
			switch name {
			case "id":
				q.User.ID, err = r.str()
			case "roles":
				q.User.Roles, err = r.strs()
			default:
				_, err = r.raw()
			}
			return err
		})
	case "session":
		q.Session, err = r.str()
	case "run":
		q.Run, err = r.str()
	case "step":
		q.Step, err = r.integer()
	case "message":
		err = q.readJudged(r, &q.Message)
	case "request":
		err = q.readJudged(r, &q.Request)
	case "response":
		err = q.readJudged(r, &q.Response)
	case "call":
		err = q.readCall(r)
	case "result":
		q.Result.raw, err = r.raw()
	case "grants":
		q.Grants, err = r.strs()
	case "settings":
		a.settings, err = r.raw()
	case "facts":
		var raw json.RawMessage
		if raw, err = r.raw(); err == nil {
			err = json.Unmarshal(raw, &q.Facts)
		}
	default:
		_, err = r.raw()
	}
	return err
}

// readJudged reads the document of a phase that is not about a call.
func (q *Question) readJudged(r *reader, into record) error {
	start := r.i
	err := read(r, into)
	q.judged = Document{raw: r.data[start:r.i:r.i]}
	return err
}

func (q *Question) readCall(r *reader) error {
	return r.object(func(name string) (err error) {
		switch name {
		case "id":
			q.Tool.ID, err = r.str()
		case "tool":
			q.Tool.Name, err = r.str()
		case "known":
			q.Tool.Known, err = r.flag()
		case "effects":
			err = readText(r, &q.Tool.Effects)
		case "module":
			q.Tool.Module, err = r.str()
		case "definition_sha256":
			q.Tool.Definition, err = r.str()
		case "args":
			q.Args.raw, err = r.raw()
		default:
			_, err = r.raw()
		}
		return err
	})
}

// encodeVerdict writes a verdict in canonical form, as [abi.Marshal] does.
func encodeVerdict(v abi.Verdict) ([]byte, error) {
	if len(v.Document) > 0 {
		doc, err := abi.Canonical(v.Document)
		if err != nil {
			return nil, err
		}
		v.Document = doc
	}
	out := make([]byte, 0, 256+len(v.Document))
	out = append(out, '{')
	next := func(name string) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, name...)
		out = append(out, '"', ':')
	}
	optional := func(name, s string) {
		if s != "" {
			next(name)
			out = appendText(out, s)
		}
	}
	optional("code", v.Code)
	if len(v.Document) > 0 {
		next("document")
		out = append(out, v.Document...)
	}
	next("document_sha256")
	out = appendText(out, v.DocumentSHA256)
	if v.Format != 0 {
		next("format")
		out = strconv.AppendInt(out, int64(v.Format), 10)
	}
	if len(v.Grants) > 0 {
		next("grants")
		out = append(out, '[')
		for i, g := range v.Grants {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendText(out, g)
		}
		out = append(out, ']')
	}
	optional("hint", v.Hint)
	if v.Hold != 0 {
		next("hold")
		out = strconv.AppendInt(out, int64(v.Hold), 10)
	}
	next("nonce")
	out = appendText(out, v.Nonce)
	optional("reason", v.Reason)
	next("verdict")
	out = appendText(out, string(v.Ruling))
	if len(v.Why) > 0 {
		next("why")
		why, err := abi.Marshal(v.Why)
		if err != nil {
			return nil, err
		}
		out = append(out, why...)
	}
	return append(out, '}'), nil
}

// asItIs has the bytes that stand for themselves in a string of JSON.
var asItIs = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendText appends s as a JSON string in canonical form.
func appendText(out []byte, s string) []byte {
	i := 0
	for i < len(s) && asItIs[s[i]] {
		i++
	}
	if i == len(s) {
		out = append(out, '"')
		out = append(out, s...)
		return append(out, '"')
	}
	quoted, err := abi.Marshal(s)
	if err != nil { // it says what any string says
		panic(err)
	}
	return append(out, quoted...)
}
