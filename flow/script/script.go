package script

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"regexp"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
)

const maxFileBytes = 1 << 20

// A Model answers from a file of replies. It is safe for concurrent use.
type Model struct {
	file  string // for errors
	rules []rule
}

type rule struct {
	line  int
	text  *regexp.Regexp // on the user's text; nil holds always
	after string         // a tool or call whose result is newest; "" holds always
	steps []step
}

type step struct {
	line     int
	variants []variant // the first that holds is used
}

type variant struct {
	line       int
	ifError    string // call whose result must have an error; "" holds always
	think, say *template
	calls      []call
	fail       *template
}

type call struct {
	line int
	tool string
	id   string // "" is none
	args map[string]any
}

// Open reads the file at path as [Parse] does. Errors name the last element of
// path.
func Open(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return Parse(data, filepath.Base(path))
}

// Name returns "script".
func (m *Model) Name() string { return "script" }

// Generate answers req with the step that its contents call for. A stream is the
// thought and the text in at most four pieces each, and then the whole, with the
// calls. The model's name and the config of req have no influence.
func (m *Model) Generate(ctx context.Context, req *flow.Request, stream bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		content, err := m.answer(req.Contents)
		if err != nil {
			yield(nil, err)
			return
		}
		if stream {
			for _, part := range content.Parts {
				for _, piece := range pieces(part.Text) {
					partial := &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{{Text: piece, Thought: part.Thought}}}
					if !yield(&session.Response{Content: partial, Partial: true}, nil) {
						return
					}
					if ctx.Err() != nil {
						yield(nil, context.Cause(ctx))
						return
					}
				}
			}
		}
		yield(&session.Response{Content: content, FinishReason: genai.FinishReasonStop}, nil)
	}
}

// pieces cuts text into at most four of about the same length.
func pieces(text string) []string {
	const most = 4
	runes := []rune(text)
	n := min(most, len(runes))
	cut := make([]string, n)
	for i := range cut {
		cut[i] = string(runes[i*len(runes)/n : (i+1)*len(runes)/n])
	}
	return cut
}
