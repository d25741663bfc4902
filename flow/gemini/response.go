package gemini

import (
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// toResponse returns what a reply, or a chunk of one, says. The response shares
// the reply's content.
func toResponse(reply *genai.GenerateContentResponse) *session.Response {
	response := &session.Response{Usage: reply.UsageMetadata}
	if len(reply.Candidates) > 0 && reply.Candidates[0] != nil {
		candidate := reply.Candidates[0]
		response.FinishReason = candidate.FinishReason
		response.Grounding = candidate.GroundingMetadata
		response.Citation = candidate.CitationMetadata
		hasParts := candidate.Content != nil && len(candidate.Content.Parts) > 0
		if hasParts || candidate.FinishReason == genai.FinishReasonStop {
			response.Content = candidate.Content
			return response
		}
		response.ErrorCode = string(candidate.FinishReason)
		response.ErrorMessage = candidate.FinishMessage
		return response
	}
	if reply.PromptFeedback != nil {
		response.ErrorCode = string(reply.PromptFeedback.BlockReason)
		response.ErrorMessage = reply.PromptFeedback.BlockReasonMessage
		return response
	}
	response.Content = &genai.Content{Role: genai.RoleModel}
	return response
}
