package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genai"
)

// genai decodes the arguments of a call to float64, which does not keep every digit.
// So a reply is rewritten before genai reads it: in arguments a number becomes a
// string with a mark, and a string that begins like one gets another mark. restore
// undoes both. The number of a streamed argument stays, and its text is put, with a
// mark, where the string of the argument would be. A number that no float64 comes
// near, such as 1e400, is left to genai, which refuses it.

const (
	mark       = "\x00"
	markNumber = mark + "n"
	markText   = mark + "s"
)

// An exactBody rewrites a reply as it is read: line by line if it is a stream of
// events, else whole.
type exactBody struct {
	io.Closer
	in     *bufio.Reader
	events bool
	ready  []byte
	err    error
}

func newExactBody(reply *http.Response, events bool) *exactBody {
	reply.ContentLength = -1
	reply.Header.Del("Content-Length")
	return &exactBody{Closer: reply.Body, in: bufio.NewReader(reply.Body), events: events}
}

func (b *exactBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 && b.err == nil {
		b.fill()
	}
	if len(b.ready) == 0 {
		return 0, b.err
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

func (b *exactBody) fill() {
	if !b.events {
		var doc []byte
		if doc, b.err = io.ReadAll(b.in); b.err == nil {
			b.ready, b.err = markNumbers(doc), io.EOF
		}
		return
	}
	b.ready, b.err = b.in.ReadBytes('\n')
	if doc, ok := bytes.CutPrefix(b.ready, []byte("data:")); ok {
		text := bytes.TrimRight(doc, "\r\n")
		b.ready = slices.Concat([]byte("data:"), markNumbers(text), doc[len(text):])
	}
}

// markNumbers returns a reply with marks in arguments; what is no JSON stays.
func markNumbers(doc []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var reply map[string]any
	if err := d.Decode(&reply); err != nil {
		return doc
	}
	if _, err := d.Token(); err != io.EOF {
		return doc
	}
	candidates, _ := reply["candidates"].([]any)
	for _, candidate := range candidates {
		parts, _ := at(candidate, "content", "parts").([]any)
		for _, part := range parts {
			call, _ := at(part, "functionCall").(map[string]any)
			if args, ok := call["args"]; ok {
				call["args"] = mapLeaves(args, marked)
			}
			pieces, _ := call["partialArgs"].([]any)
			for _, piece := range pieces {
				markPiece(piece)
			}
		}
	}
	out, err := json.Marshal(reply)
	if err != nil {
		return doc
	}
	return out
}

// markPiece marks one streamed argument. A string goes before a number.
func markPiece(piece any) {
	arg, _ := piece.(map[string]any)
	if text, _ := arg["stringValue"].(string); text != "" {
		arg["stringValue"] = marked(text)
		return
	}
	number, _ := arg["numberValue"].(json.Number)
	if text, ok := marked(number).(string); ok {
		arg["stringValue"] = text
	}
}

// at goes down the members of objects.
func at(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func marked(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := strconv.ParseFloat(v.String(), 64); err == nil && !math.IsInf(f, 0) {
			return markNumber + v.String()
		}
	case string:
		if strings.HasPrefix(v, mark) {
			return markText + v
		}
	}
	return v
}

func unmarked(v any) any {
	s, _ := v.(string)
	if number, ok := strings.CutPrefix(s, markNumber); ok {
		return json.Number(number)
	}
	if text, ok := strings.CutPrefix(s, markText); ok {
		return text
	}
	return v
}

// mapLeaves applies f to everything in v that is neither an object nor an array.
func mapLeaves(v any, f func(any) any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = mapLeaves(member, f)
		}
		return v
	case []any:
		for i, element := range v {
			v[i] = mapLeaves(element, f)
		}
		return v
	}
	return f(v)
}

// restore puts the numbers back into a reply that genai has decoded, and returns the
// texts of those that streamed arguments have.
func restore(reply *genai.GenerateContentResponse) map[*genai.PartialArg]json.Number {
	exact := map[*genai.PartialArg]json.Number{}
	for _, candidate := range reply.Candidates {
		if candidate == nil || candidate.Content == nil {
			continue
		}
		for _, part := range candidate.Content.Parts {
			if part == nil || part.FunctionCall == nil {
				continue
			}
			mapLeaves(part.FunctionCall.Args, unmarked)
			for _, arg := range part.FunctionCall.PartialArgs {
				if arg == nil {
					continue
				}
				switch v := unmarked(arg.StringValue).(type) {
				case string:
					arg.StringValue = v
				case json.Number:
					arg.StringValue = ""
					exact[arg] = v
				}
			}
		}
	}
	return exact
}
