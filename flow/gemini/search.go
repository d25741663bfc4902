package gemini

import (
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
)

// GoogleSearch returns the tool google_search, with which a Gemini model searches by
// itself. It edits requests and is never called here, so no guard judges what is
// searched for, and no other provider knows it.
func GoogleSearch() flow.Tool { return &search{flow.Spec{Name: "google_search"}} }

type search struct{ spec flow.Spec }

// Spec implements [flow.Tool].
func (s *search) Spec() *flow.Spec { return &s.spec }

// ProcessRequest implements [flow.RequestProcessor].
func (s *search) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	req.Config.Tools = append(req.Config.Tools, &genai.Tool{GoogleSearch: &genai.GoogleSearch{}})
	return nil
}
