package authortest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Table is a decision table: questions, and what a guard is to say to each. It is
// not changed by running, and safe for concurrent use.
type Table struct {
	File  string // as named
	Guard string // the module, a file or a folder of source, relative to the folder of File; empty: the folder that is tested
	Name  string // the guard in the module; empty if there is but one

	// Equivalent are changes of the guard that no row can notice, by their ID (see [Mutant]), and why.
	Equivalent map[string]string

	settings json.RawMessage
	base     overlay
	rows     []row
}

// Rows returns how many rows the table has.
func (t *Table) Rows() int { return len(t.rows) }

// Settings returns the settings that rows without any of their own have; nil if
// there are none.
func (t *Table) Settings() json.RawMessage { return t.settings }

// A row is one test: a question, several in order that share kv, or one asked
// several times at once.
type row struct {
	name     string
	line     int
	settings json.RawMessage // nil: those of the table
	refused  *regexp.Regexp  // nil, or what the guard says of the settings
	kv       *storage
	steps    []step
	parallel int            // 0, or how often the one step is asked at the same time
	counts   map[string]int // for parallel: how many of which verdict
}

// A step is one question and what is wanted.
type step struct {
	name    string
	line    int
	overlay overlay
	want    want
}

// A storage is what kv is at the start of a row.
type storage struct {
	down   bool
	values map[string]json.RawMessage
}

// An overlay is the part of a question that a table or row says itself.
type overlay struct {
	members map[string]any // of the question, with args below call
	raw     *string        // args_text
	chunks  []string       // what a stream says, piece by piece; nil: no stream
}

// A want is what a guard is to answer. A part that is not there is not compared.
type want struct {
	verdict abi.Ruling
	code    *string
	reason  *regexp.Regexp
	hint    *regexp.Regexp
	at      *string
	rewrite json.RawMessage // canonical; nil: not compared
	text    *string         // of a rewritten message or response
	grants  *capability.Set
	hold    *int64
	chunks  []string // what is shown when each chunk has come
	kv      map[string]json.RawMessage
}

var (
	members = []string{"phase", "now", "tenant", "app", "agent", "user", "session", "run", "step", "message", "request", "response", "partial", "call", "result", "grants", "facts"}
	short   = []string{"args", "args_text", "text", "chunks"} // ways to write a document
	atRow   = []string{"settings", "kv"}
)

// ParseTable reads a decision table; name is its file's. The error joins every
// mistake, each with its line.
//
// A table is a document in YAML, or JSON if the name ends in ".json":
//
//	guard: ../office.wasm          # a module, or a folder of source; default: the folder that is tested
//	name: office                   # the guard, if the module has several
//	settings: {…}                  # default: none
//	base: {phase: call, …}         # what all questions have
//	rows:
//	  - [name, {args: {…}}, allow]
//	  - [name, {…}, deny code]
//	  - [name, {…}, {verdict: confirm, hint: "^Pay"}]
//	  - {name: …, settings: {…}, question: {…}, want: …}
//	  - {name: …, settings: {…}, refused: "above deny_from"}  # the settings are not accepted
//	  - {name: …, steps: [[a, {…}, allow], [b, {…}, deny quota]]}
//	  - {name: …, question: {…}, parallel: 5, want: {allow: 2, deny: 3}}
//	equivalent: {"judge turned 2": why no row can notice that change of the guard}
//
// A question has the members of [abi.Question]. Its documents are replaced as a
// whole; members of user, call and facts are replaced one by one. "args" stands for
// the arguments of the call and "args_text" for their bytes, right or wrong;
// "text" for a message, response or request that says just that, and "chunks" for a
// response that comes in pieces. What the base says in one of these ways, no row may
// say in another, which would be of no effect. "kv: unavailable" is a store that fails, and
// "kv: {key: value}" one that holds something; each row begins with its own.
func ParseTable(name string, data []byte) (*Table, error) {
	s := &source{name: name}
	t := &Table{File: name}
	doc := s.read(data)
	if doc == nil {
		return nil, s.err()
	}
	top := s.object(doc, "table", "guard", "name", "settings", "base", "rows", "equivalent")
	t.Guard, t.Name = s.text(top["guard"], "guard"), s.text(top["name"], "name")
	t.settings = s.json(top["settings"], "settings")
	t.Equivalent = s.strings(top["equivalent"], "equivalent")
	if n := top["base"]; n != nil {
		t.base = s.overlay(n, "base")
	}
	rows := top["rows"]
	switch {
	case rows == nil && top != nil:
		s.fail(doc, "", "table: rows missing")
	case rows != nil && rows.Kind != yaml.SequenceNode:
		s.fail(rows, "", "rows: want a list")
	case rows != nil:
		seen := map[string]bool{}
		for i, n := range rows.Content {
			r := s.row(n, fmt.Sprintf("rows[%d]", i))
			if seen[r.name] {
				s.fail(n, "", "row %q: there are two of that name", r.name)
			}
			seen[r.name] = true
			for _, st := range r.steps {
				s.hidden(n, fmt.Sprintf("row %q", st.name), t.base, st.overlay)
			}
			t.rows = append(t.rows, r)
		}
	}
	return t, s.err()
}

func (s *source) row(n *yaml.Node, what string) row {
	r := row{line: n.Line}
	if n.Kind == yaml.SequenceNode {
		st, more := s.short(n, what, atRow)
		r.name, r.steps = st.name, []step{st}
		s.rowMembers(&r, more, what)
		return r
	}
	m := s.object(n, what, append([]string{"name", "question", "steps", "parallel", "want", "refused"}, atRow...)...)
	r.name = s.text(m["name"], what+".name")
	if r.name == "" {
		s.fail(n, "", "%s: name missing", what)
	}
	s.rowMembers(&r, m, what)
	one := step{name: r.name, line: n.Line}
	if q := m["question"]; q != nil {
		one.overlay = s.overlay(q, what+".question")
	}
	r.parallel = int(s.whole(m["parallel"], what+".parallel", 2))
	alone := func(key string, others ...string) {
		for _, other := range others {
			if m[key] != nil && m[other] != nil {
				s.fail(m[key], "", "%s: %s and %s exclude each other", what, key, other)
			}
		}
	}
	alone("steps", "question", "want", "parallel", "refused")
	alone("refused", "question", "want", "parallel")
	switch {
	case m["refused"] != nil:
		r.refused = s.pattern(m["refused"], what+".refused")
		return r
	case m["steps"] != nil:
		if m["steps"].Kind != yaml.SequenceNode || len(m["steps"].Content) == 0 {
			s.fail(m["steps"], "", "%s.steps: want a list of rows", what)
			return r
		}
		for i, c := range m["steps"].Content {
			st, _ := s.short(c, fmt.Sprintf("%s.steps[%d]", what, i), nil)
			r.steps = append(r.steps, st)
		}
		return r
	case m["want"] == nil:
		s.fail(n, "", "%s: want missing", what)
		return r
	case r.parallel > 0:
		r.counts = map[string]int{}
		for verdict, count := range s.object(m["want"], what+".want", rulings...) {
			r.counts[verdict] = int(s.whole(count, what+".want."+verdict, 0))
		}
	default:
		one.want = s.want(m["want"], what+".want")
	}
	r.steps = []step{one}
	return r
}

func (s *source) rowMembers(r *row, m map[string]*yaml.Node, what string) {
	r.settings = s.json(m["settings"], what+".settings")
	n := m["kv"]
	if n == nil {
		return
	}
	r.kv = &storage{values: map[string]json.RawMessage{}}
	if n.Kind == yaml.ScalarNode {
		if r.kv.down = n.Value == "unavailable"; !r.kv.down {
			s.fail(n, "", "%s.kv: want unavailable, or an object of values", what)
		}
		return
	}
	r.kv.values = s.documents(n, what+".kv")
}

// documents returns an object's members as canonical documents.
func (s *source) documents(n *yaml.Node, what string) map[string]json.RawMessage {
	v, ok := s.value(n, what).(map[string]any)
	if !ok {
		s.fail(n, "", "%s: want an object", what)
	}
	out := map[string]json.RawMessage{}
	for key, value := range v {
		doc, err := abi.Marshal(value)
		if err != nil {
			s.fail(n, "", "%s: %v", what, err)
		}
		out[key] = doc
	}
	return out
}

// short reads [name, overlay, want]. Members of the overlay that are the row's are
// returned apart.
func (s *source) short(n *yaml.Node, what string, apart []string) (step, map[string]*yaml.Node) {
	st := step{line: n.Line}
	if n.Kind != yaml.SequenceNode || len(n.Content) != 3 {
		s.fail(n, "", "%s: want [name, question, want]", what)
		return st, nil
	}
	st.name = s.text(n.Content[0], what+": name")
	q := *n.Content[1]
	more := map[string]*yaml.Node{}
	if q.Kind == yaml.MappingNode {
		q.Content = nil
		for i := 0; i+1 < len(n.Content[1].Content); i += 2 {
			k, v := n.Content[1].Content[i], n.Content[1].Content[i+1]
			if slices.Contains(apart, k.Value) {
				more[k.Value] = v
			} else {
				q.Content = append(q.Content, k, v)
			}
		}
	}
	st.overlay = s.overlay(&q, fmt.Sprintf("row %q", st.name))
	st.want = s.want(n.Content[2], fmt.Sprintf("row %q: want", st.name))
	return st, more
}

func (s *source) overlay(n *yaml.Node, what string) overlay {
	o := overlay{members: map[string]any{}}
	m := s.object(n, what, append(slices.Clone(members), short...)...)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := what + ": " + key
		switch key {
		case "args":
		case "args_text":
			raw := s.text(m[key], at)
			o.raw = &raw
		case "chunks":
			o.chunks = s.texts(m[key], at)
		default:
			o.members[key] = s.value(m[key], at)
		}
	}
	if m["args"] != nil {
		call, ok := o.members["call"].(map[string]any)
		if !ok {
			call = map[string]any{}
		}
		call["args"] = s.value(m["args"], what+": args")
		o.members["call"] = call
	}
	for _, by := range slices.Sorted(maps.Keys(hiding)) {
		for _, field := range hiding[by] {
			if o.says(by) && o.says(field) {
				s.fail(m[by], "", "%s: %s and %s exclude each other", what, by, field)
			}
		}
	}
	return o
}

// hiding are the ways to write a document that stand for others, by name: "text" for
// the words of a message, request or response, "args_text" for the arguments and
// "chunks" for a response.
var hiding = map[string][]string{
	"text":      {"message.parts", "request.contents", "response.content"},
	"args_text": {"call.args"},
	"chunks":    {"text", "response"},
}

// says reports whether an overlay has a member, or one below it.
func (o overlay) says(path string) bool {
	switch path {
	case "args_text":
		return o.raw != nil
	case "chunks":
		return o.chunks != nil
	}
	key, below, _ := strings.Cut(path, ".")
	value, ok := o.members[key]
	if object, isObject := value.(map[string]any); isObject && below != "" {
		_, ok = object[below]
	}
	return ok
}

// hidden reports what a row says that would be of no effect, because the base says
// it in another way that stands for it.
func (s *source) hidden(n *yaml.Node, what string, base, row overlay) {
	for _, by := range slices.Sorted(maps.Keys(hiding)) {
		for _, field := range hiding[by] {
			if base.says(by) && !row.says(by) && row.says(field) {
				s.fail(n, "say it in the same way, or not in the base", "%s: %s: the base has %s, which stands for it", what, field, by)
			}
		}
	}
}

var rulings = []string{string(abi.RulingAllow), string(abi.RulingRewrite), string(abi.RulingNarrow), string(abi.RulingConfirm), string(abi.RulingDeny)}

func (s *source) want(n *yaml.Node, what string) want {
	var w want
	verdict := n
	if n.Kind == yaml.MappingNode {
		m := s.object(n, what, "verdict", "code", "reason", "hint", "at", "rewrite", "text", "grants", "hold", "chunks", "kv")
		w.reason, w.hint = s.pattern(m["reason"], what+".reason"), s.pattern(m["hint"], what+".hint")
		w.rewrite, w.chunks = s.json(m["rewrite"], what+".rewrite"), s.texts(m["chunks"], what+".chunks")
		for key, into := range map[string]**string{"code": &w.code, "at": &w.at, "text": &w.text} {
			if m[key] != nil {
				text := s.text(m[key], what+"."+key)
				*into = &text
			}
		}
		if m["grants"] != nil {
			set, err := capability.ParseSet(s.texts(m["grants"], what+".grants"))
			if err != nil {
				s.fail(m["grants"], "", "%s.grants: %v", what, err)
			}
			w.grants = &set
		}
		if m["hold"] != nil {
			hold := s.whole(m["hold"], what+".hold", 0)
			w.hold = &hold
		}
		if m["kv"] != nil {
			w.kv = s.documents(m["kv"], what+".kv")
		}
		if verdict = m["verdict"]; verdict == nil {
			s.fail(n, "", "%s: verdict missing", what)
			return w
		}
	}
	ruling, code, coded := strings.Cut(s.text(verdict, what), " ")
	if !slices.Contains(rulings, ruling) {
		hint := "verdicts: " + strings.Join(rulings, ", ")
		if near := app.Nearest(ruling, rulings); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		s.fail(verdict, hint, "%s: %q is no verdict", what, ruling)
	}
	w.verdict = abi.Ruling(ruling)
	if coded && w.code == nil {
		w.code = &code
	}
	return w
}

// A Question is a question as a row of a table has it.
type Question struct{ overlay overlay }

// ParseQuestion reads a question that stands alone; name is its file's. It has the
// members that a question in a table may have; chunks are a mistake.
func ParseQuestion(name string, data []byte) (*Question, error) {
	s := &source{name: name}
	doc := s.read(data)
	if doc == nil {
		return nil, s.err()
	}
	q := &Question{s.overlay(doc, "question")}
	if q.overlay.chunks != nil {
		s.fail(doc, "a decision table can have a stream", "question: chunks: have no place here")
	}
	return q, s.err()
}

// Says reports whether the question itself has a member, such as "phase".
func (q *Question) Says(member string) bool { return q.overlay.members[member] != nil }

// For returns the question as it is put to a guard, but for the nonce. An error says
// what is wrong with it, or that its arguments are such that no guard is asked.
func (q *Question) For(g flow.Guard) (abi.Question, error) { return q.overlay.question(g) }
