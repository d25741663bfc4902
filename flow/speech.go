package flow

import (
	"context"
	"errors"
	"slices"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A speech is what a model says in one step, on its way past the guards. Of a
// stream they see all that was said so far, and of that so much is shown as no
// guard holds back. When the whole has passed, what was held is shown, too, and
// then the whole.
type speech struct {
	*step
	said []segment // by the model, as hooks left it
	sent []segment // as guards left it
}

// A segment is a stretch of text of one kind, or a part that is no text.
type segment struct {
	thought bool
	text    string
	part    *genai.Part // nil: text
}

// pass asks the guards about a response and returns what may be shown, in order.
// An error is a refusal, after which nothing more of the model is wanted.
func (s *speech) pass(ctx context.Context, resp *session.Response) ([]*session.Response, *CallError) {
	if !s.guarded(abi.PhaseResponse) || isNothing(resp) || !says(resp) {
		return []*session.Response{resp}, nil
	}
	resp = cloneResponse(resp)
	cleanText(resp.Content)
	if resp.Partial {
		return s.part(ctx, resp)
	}
	whole, _, refused := s.judgeResponse(ctx, s.agent.Name, s.number, resp)
	if refused != nil {
		return nil, refused
	}
	said, sent := s.said, s.sent
	s.said, s.sent = nil, nil
	if len(said) == 0 {
		return []*session.Response{whole}, nil
	}
	rest, follows := after(segments(whole.Content), sent)
	if _, followed := after(segments(resp.Content), sent); !follows && followed {
		return nil, contradicts()
	}
	tail := slices.DeleteFunc(rest, func(g segment) bool { return g.part != nil })
	if held := !slices.Equal(said, sent); !held || !follows || len(tail) == 0 {
		return []*session.Response{whole}, nil
	}
	shown := &session.Response{Content: &genai.Content{Role: whole.Content.Role, Parts: partsOf(tail)}, Partial: true}
	return []*session.Response{shown, whole}, nil
}

// part asks about what a stream has said so far.
func (s *speech) part(ctx context.Context, resp *session.Response) ([]*session.Response, *CallError) {
	more := segments(resp.Content)
	for _, g := range more {
		s.said = appendSegment(s.said, g)
	}
	all := *resp
	if resp.Content != nil {
		all.Content = &genai.Content{Role: resp.Content.Role, Parts: partsOf(s.said)}
	}
	judged, hold, refused := s.judgeResponse(ctx, s.agent.Name, s.number, &all)
	if refused != nil {
		return nil, refused
	}
	visible := holdBack(segments(judged.Content), hold)
	fresh, follows := after(visible, s.sent)
	if !follows {
		if _, shorter := after(s.sent, visible); shorter {
			return nil, nil // nothing new, and nothing of what is out was changed
		}
		return nil, contradicts()
	}
	s.sent = visible
	switch {
	case slices.Equal(fresh, more):
		return []*session.Response{resp}, nil
	case len(fresh) == 0:
		return nil, nil
	}
	out := *resp
	out.Content = &genai.Content{Role: resp.Content.Role, Parts: partsOf(fresh)}
	return []*session.Response{&out}, nil
}

// contradicts is the refusal of a rewrite that comes too late.
func contradicts() *CallError {
	return &CallError{Code: abi.PolicyUnavailable, Text: unavailableText(abi.PhaseResponse), Err: errors.New("response: a guard rewrites text that has been shown; it must hold back what it may want to change")}
}

// segments returns a content as segments, stretches of text joined.
func segments(c *genai.Content) []segment {
	var out []segment
	for _, p := range parts(c) {
		switch {
		case p == nil:
		case p.FunctionCall != nil || p.FunctionResponse != nil || p.InlineData != nil || p.FileData != nil || p.ExecutableCode != nil || p.CodeExecutionResult != nil:
			out = appendSegment(out, segment{part: p})
		default:
			out = appendSegment(out, segment{thought: p.Thought, text: p.Text})
		}
	}
	return out
}

func appendSegment(list []segment, g segment) []segment {
	if g.part == nil && g.text == "" {
		return list
	}
	if n := len(list); n > 0 && g.part == nil && list[n-1].part == nil && list[n-1].thought == g.thought {
		list = slices.Clone(list)
		list[n-1].text += g.text
		return list
	}
	return append(slices.Clip(list), g)
}

func partsOf(list []segment) []*genai.Part {
	out := make([]*genai.Part, 0, len(list))
	for _, g := range list {
		if g.part != nil {
			out = append(out, g.part)
		} else {
			out = append(out, &genai.Part{Text: g.text, Thought: g.thought})
		}
	}
	return out
}

// holdBack returns a list without its last hold characters, and without what
// comes after the first of them.
func holdBack(list []segment, hold int) []segment {
	out := slices.Clone(list)
	for hold > 0 && len(out) > 0 {
		last := &out[len(out)-1]
		n := utf8.RuneCountInString(last.text)
		if last.part == nil && n > hold {
			at := len(last.text)
			for range hold {
				_, size := utf8.DecodeLastRuneInString(last.text[:at])
				at -= size
			}
			last.text = last.text[:at]
			return out
		}
		hold -= n
		out = out[:len(out)-1]
	}
	return out
}

// after returns what follows in a list behind its beginning; false if it does not
// begin so.
func after(list, beginning []segment) ([]segment, bool) {
	for i, b := range beginning {
		if i >= len(list) {
			return nil, false
		}
		g := list[i]
		switch {
		case sameSegment(g, b):
		case i == len(beginning)-1 && g.part == nil && b.part == nil && g.thought == b.thought && len(g.text) > len(b.text) && g.text[:len(b.text)] == b.text:
			rest := slices.Clone(list[i:])
			rest[0].text = g.text[len(b.text):]
			return rest, true
		default:
			return nil, false
		}
	}
	return slices.Clone(list[len(beginning):]), true
}

func sameSegment(a, b segment) bool {
	if a == b {
		return true
	}
	return a.part != nil && b.part != nil && jsonDigest(&genai.Content{Parts: []*genai.Part{a.part}}) == jsonDigest(&genai.Content{Parts: []*genai.Part{b.part}})
}
