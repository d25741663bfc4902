package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a record's texts, in bytes. A longer text is cut and ends in [Cut].
const (
	MaxID   = 256  // all members but those below
	MaxText = 1024 // target, capability and why
)

// Cut marks the end of a text that was too long.
const Cut = "…[cut]"

// Genesis is the prev member of the first record of a log, and the head of a log
// without records.
const Genesis = "0000000000000000000000000000000000000000000000000000000000000000"

// maxLine is more than any record within the bounds takes, where every byte of
// its texts is escaped.
const maxLine = 64 << 10

// A Record says what was decided about one action. Only Action is required.
// Texts may come from anywhere: they are cut at their bounds, bytes that are not
// UTF-8 are replaced, and JSON escapes the rest.
type Record struct {
	Seq  uint64    `json:"seq"`  // set by the log: counts from 1
	Time time.Time `json:"time"` // in UTC; the zero Time takes the time of Append

	Tenant string `json:"tenant,omitempty"`
	Actor  string `json:"actor,omitempty"` // who acts, such as "user:ana" or "operator:bo"
	Action string `json:"action"`          // such as "call.allow", "guard.deny", "call.intent", "session.import"
	Target string `json:"target,omitempty"`

	Module     string `json:"module,omitempty"` // digest of the module
	Call       string `json:"call,omitempty"`   // id of the call; likewise Session and Run
	Session    string `json:"session,omitempty"`
	Run        string `json:"run,omitempty"`
	Capability string `json:"capability,omitempty"` // the line that was used or needed
	Decision   string `json:"decision,omitempty"`
	Code       string `json:"code,omitempty"`
	ArgsSHA256 string `json:"args_sha256,omitempty"` // of the arguments in canonical form
	Why        string `json:"why,omitempty"`         // for the operator: what the decision rests on

	Prev string `json:"prev"` // set by the log, see the package comment
	Hash string `json:"hash"` // set by the log, see the package comment
}

// A Sink keeps records. Append returns once the record is durable. An error means
// that it may not be, and the caller must refuse the action it describes. There
// is no sink that drops records. Append is safe for concurrent use; ctx
// bounds waiting.
type Sink interface {
	Append(ctx context.Context, r Record) error
}

// chain is the end of a log: the number of its last record, and the digest of
// that record's line.
type chain struct {
	seq  uint64
	head string
}

func start() chain { return chain{head: Genesis} }

// add completes r as the next record of the chain and returns it with its line,
// without "\n", written over buf, and the chain that then ends in it.
func (c chain) add(r Record, buf []byte) (Record, []byte, chain, error) {
	if r.Action == "" {
		return r, nil, c, errors.New("audit record: no action")
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r.Time = r.Time.UTC().Round(0)
	bound(&r)
	r.Seq, r.Prev = c.seq+1, c.head
	line, head, err := r.seal(buf)
	if err != nil {
		return r, nil, c, err
	}
	return r, line, chain{r.Seq, head}, nil
}

// bound applies the bounds of texts.
func bound(r *Record) {
	for _, s := range []*string{&r.Tenant, &r.Actor, &r.Action, &r.Module, &r.Call, &r.Session, &r.Run, &r.Decision, &r.Code, &r.ArgsSHA256} {
		*s = cut(*s, MaxID)
	}
	for _, s := range []*string{&r.Target, &r.Capability, &r.Why} {
		*s = cut(*s, MaxText)
	}
}

// cut makes s valid UTF-8 of at most limit bytes.
func cut(s string, limit int) string {
	whole := len(s) <= limit
	if whole && utf8.ValidString(s) {
		return s
	}
	if !whole {
		s = s[:limit] // all that matters; replacing bytes may make it longer
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if whole && len(s) <= limit {
		return s
	}
	end := min(len(s), limit-len(Cut))
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + Cut
}

// seal sets the hash of r and returns its line without "\n", written over buf, and the line's
// digest. The hash is of all but itself, with which the line begins, so that is read once.
func (r *Record) seal(buf []byte) (line []byte, head string, err error) {
	body, err := r.appendBody(buf[:0])
	if err != nil {
		return nil, "", fmt.Errorf("audit record: %w", err)
	}
	open := body[:len(body)-1]
	sum := sha256.New()
	sum.Write(open)
	whole, err := sum.(hash.Cloner).Clone()
	if err != nil {
		return nil, "", fmt.Errorf("audit record: %w", err)
	}
	sum.Write([]byte("}"))
	r.Hash = hexadecimal(sum)
	line = append(append(append(open, `,"hash":"`...), r.Hash...), `"}`...)
	whole.Write(line[len(open):])
	return line, hexadecimal(whole), nil
}

func hexadecimal(h hash.Hash) string {
	var sum [sha256.Size]byte
	var text [2 * len(sum)]byte
	hex.Encode(text[:], h.Sum(sum[:0]))
	return string(text[:])
}

// appendBody appends r as encoding/json writes it, but without its hash. A log writes
// two records a call, and reflection would take most of the time of each.
func (r *Record) appendBody(b []byte) ([]byte, error) {
	b = strconv.AppendUint(append(b, `{"seq":`...), r.Seq, 10)
	b, err := r.Time.AppendText(append(b, `,"time":"`...))
	if err != nil {
		return nil, err
	}
	b = append(b, '"')
	for _, m := range []struct{ key, text string }{
		{`,"tenant":`, r.Tenant},
		{`,"actor":`, r.Actor},
		{`,"action":`, r.Action}, // never empty, see add
		{`,"target":`, r.Target},
		{`,"module":`, r.Module},
		{`,"call":`, r.Call},
		{`,"session":`, r.Session},
		{`,"run":`, r.Run},
		{`,"capability":`, r.Capability},
		{`,"decision":`, r.Decision},
		{`,"code":`, r.Code},
		{`,"args_sha256":`, r.ArgsSHA256},
		{`,"why":`, r.Why},
		{`,"prev":`, r.Prev},
	} {
		if m.text != "" {
			b = appendText(append(b, m.key...), m.text)
		}
	}
	return append(b, '}'), nil
}

// appendText appends a string of JSON, which is s between quotes unless something in
// it may have to be escaped.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(s) // of a string it never fails
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func digest(line []byte) string {
	sum := sha256.Sum256(line)
	var text [2 * len(sum)]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}
