package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genai"
)

// MaxArtifact is how many bytes one version of an artifact may have: those of its
// content, and of what else its part says, as JSON.
const MaxArtifact = 64 << 20

// ValidArtifactName reports whether s may name an artifact: 1 to 512 bytes of
// path segments joined by '/', none of them empty, "." or "..", after an
// optional "user:"; no backslash, colon or control character.
func ValidArtifactName(s string) error {
	rest := strings.TrimPrefix(s, string(ScopeUser))
	if len(s) > 512 || rest == "" {
		return fmt.Errorf("artifact name: %d bytes: want 1 to 512", len(s))
	}
	for seg := range strings.SplitSeq(rest, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return fmt.Errorf("artifact name %.80q: segment %.80q is not allowed", s, seg)
		}
	}
	for _, r := range rest {
		if r < ' ' || r == '\\' || r == ':' || r == 0x7f {
			return fmt.Errorf("artifact name %.80q: %U is not allowed", s, r)
		}
	}
	return nil
}

// ValidArtifact reports whether a part may be kept as an artifact of that name. A
// part that is nil, cannot be encoded or is longer than [MaxArtifact] may not.
func ValidArtifact(name string, part *genai.Part) error {
	if err := ValidArtifactName(name); err != nil {
		return err
	}
	if part == nil {
		return fmt.Errorf("artifact %s: no content", name)
	}
	rest, size := *part, len(part.Text)
	rest.Text = ""
	if part.InlineData != nil {
		inline := *part.InlineData
		inline.Data = nil
		size += len(part.InlineData.Data)
		rest.InlineData = &inline
	}
	data, err := json.Marshal(&rest)
	if err != nil {
		return fmt.Errorf("artifact %s: %w", name, err)
	}
	if size += len(data); size > MaxArtifact {
		return fmt.Errorf("artifact %s: %d bytes exceed limit %d: %w", name, size, MaxArtifact, ErrTooLarge)
	}
	return nil
}

// ErrTooLarge matches the error for what is longer than it may be kept.
var ErrTooLarge = errors.New("too large")
