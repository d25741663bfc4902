package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"google.golang.org/genai"
)

const maxMessageBytes = 2048 // of an error: some services answer with a page

// An APIError is an error that the service answered with, in place of an answer
// or in the middle of a stream.
type APIError struct {
	Status  int    // HTTP status code, as the service's error document gives it; 0 if it gives none
	Message string // the service's own text, at most 2 KiB, without the API key
}

func (e *APIError) Error() string {
	return fmt.Sprintf("status %d: %s", e.Status, e.Message)
}

// failure turns what genai returned into an error that can be shown.
func (m *Model) failure(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("gemini model %s: %w", name, context.Cause(ctx))
	}
	if e, ok := errors.AsType[genai.APIError](err); ok {
		return fmt.Errorf("gemini model %s: %w", name, &APIError{Status: e.Code, Message: m.presentable(e.Message)})
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("gemini model %s: reply exceeds limit %d bytes", name, e.Limit)
	}
	// genai quotes the whole of what it cannot decode. A stream that breaks off, or
	// exceeds the limit, within a chunk ends up here too.
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("gemini model %s: reply breaks off or is no JSON: %v", name, e)
	}
	return fmt.Errorf("gemini model %s: %s", name, m.presentable(err.Error()))
}

// presentable strikes the key out of text, makes it one line of valid UTF-8 and
// then cuts it: half a key would not be found.
func (m *Model) presentable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, m.key.Replace(text))
	if len(text) > maxMessageBytes {
		text = strings.ToValidUTF8(text[:maxMessageBytes-len("…")], "") + "…"
	}
	return text
}
