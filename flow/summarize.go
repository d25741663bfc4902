package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// Bounds of what a model is shown to sum up, in characters.
const (
	maxTranscriptPart = 2000
	maxTranscript     = 200_000
)

const summarizeTimeout = time.Minute

const summarizePrompt = `Below is a conversation between a user and an AI agent. It may begin with a summary of what came before.
Write a summary that can take its place: what the user wants, what was decided and found out, and which questions are open.

You must:
1. Begin with a line that names the main language of the user.
2. List the exact names of all tools that were used.
3. Keep a section "Durable facts" with every concrete detail that the user gave (names, numbers, dates, places, wishes), copied word for word.
   Take over all durable facts of an earlier summary.

Be brief in everything else.

Conversation:
`

// A modelSummarizer asks a model for a summary.
type modelSummarizer struct {
	model  Model
	config *genai.GenerateContentConfig // of the agent; what shapes a text is taken from it
}

// Summarize implements [Summarizer].
func (s *modelSummarizer) Summarize(ctx context.Context, events []*session.Event) (Summary, error) {
	text, err := transcript(events)
	if err != nil {
		return Summary{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, summarizeTimeout)
	defer cancel()
	req := &Request{Model: s.model.Name(), Contents: []*genai.Content{genai.NewContentFromText(summarizePrompt+text, genai.RoleUser)},
		Config: &genai.GenerateContentConfig{}}
	if c := s.config; c != nil {
		req.Config = &genai.GenerateContentConfig{SafetySettings: slices.Clone(c.SafetySettings), Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK,
			Seed: c.Seed, HTTPOptions: c.HTTPOptions, Labels: c.Labels}
	}
	var last *session.Response
	for resp, err := range s.model.Generate(ctx, req, false) {
		if err != nil {
			return Summary{}, err
		}
		last = resp
	}
	switch {
	case last == nil:
		return Summary{}, errors.New("model: no answer")
	case last.ErrorCode != "":
		return Summary{Usage: last.Usage}, fmt.Errorf("model: %s: %s", last.ErrorCode, last.ErrorMessage)
	case last.FinishReason != "" && last.FinishReason != genai.FinishReasonStop:
		return Summary{Usage: last.Usage}, fmt.Errorf("model: stopped: %s", last.FinishReason)
	case prose(last.Content) == nil:
		return Summary{Usage: last.Usage}, errors.New("model: the summary has no text")
	}
	return Summary{Content: last.Content, Usage: last.Usage}, nil
}

// transcript writes events as one line for each part. If that is too long, parts are
// cut shorter.
func transcript(events []*session.Event) (string, error) {
	n := 0
	for _, most := range []int{maxTranscriptPart, maxTranscriptPart / 4, maxTranscriptPart / 16} {
		var b strings.Builder
		for _, e := range events {
			for _, p := range parts(e.Content) {
				if line := transcriptLine(e, p, most); line != "" {
					b.WriteString(line + "\n")
				}
			}
		}
		if n = utf8.RuneCountInString(b.String()); n <= maxTranscript {
			return b.String(), nil
		}
	}
	return "", fmt.Errorf("transcript: %d characters exceed %d", n, maxTranscript)
}

func transcriptLine(e *session.Event, p *genai.Part, most int) string {
	cut := func(text string) string {
		text = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\r", `\n`, "\u2028", `\n`, "\u2029", `\n`).Replace(text)
		if n := utf8.RuneCountInString(text); n > most {
			return fmt.Sprintf("%s... [truncated %d chars]", string([]rune(text)[:most]), n-most)
		}
		return text
	}
	switch {
	case p == nil:
	case p.Text != "" && p.Thought:
		if !isRecord(e) {
			return fmt.Sprintf("%s (thought): %s", e.Author, cut(p.Text))
		}
	case p.Text != "":
		return fmt.Sprintf("%s: %s", e.Author, cut(p.Text))
	case p.FunctionCall != nil:
		return fmt.Sprintf("%s called tool: %s(%s)", e.Author, p.FunctionCall.Name, cut(jsonText(p.FunctionCall.Args)))
	case p.FunctionResponse != nil:
		return fmt.Sprintf("Tool response from %s: %s", p.FunctionResponse.Name, cut(jsonText(p.FunctionResponse.Response)))
	case p.InlineData != nil && p.InlineData.MIMEType != "":
		return fmt.Sprintf("%s: [%s attachment]", e.Author, p.InlineData.MIMEType)
	case p.InlineData != nil:
		return e.Author + ": [inline data]"
	case p.FileData != nil:
		return e.Author + ": [file]"
	case p.ExecutableCode != nil:
		return e.Author + ": [executable code]"
	case p.CodeExecutionResult != nil:
		return e.Author + ": [code execution result]"
	}
	return ""
}
