package hostile

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// The documents that the corpus makes guards of are verdicts in our spelling: the
// good ones are read, and each bad one has the one mistake it is there for.
func TestVerdicts(t *testing.T) {
	data, err := os.ReadFile("../../../testdata/conformance/verdicts.json")
	if err != nil {
		t.Fatal(err)
	}
	var docs map[string]string
	if err := json.Unmarshal(data, &docs); err != nil {
		t.Fatal(err)
	}
	q := &abi.Question{Phase: abi.PhaseCall, Nonce: "n0", DocumentSHA256: strings.Repeat("ab", 32)}
	asked, err := abi.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	rulings := map[string]abi.Ruling{"allow": abi.RulingAllow, "deny": abi.RulingDeny, "confirm": abi.RulingConfirm,
		"narrow": abi.RulingNarrow, "narrow_wider": abi.RulingNarrow, "rewrite": abi.RulingRewrite}
	mistakes := map[string]string{"allow_upper": `"ALLOW" is no verdict`, "allow_without_nonce": "nonce is not the question's",
		"allow_extra_key": "override", "deny_then_allow_key": abi.ErrDuplicate.Error()}
	for name, text := range docs {
		if strings.HasSuffix(name, "_needle") {
			if !strings.Contains(string(asked), text) {
				t.Errorf("%s: %q does not stand in a question: %s", name, text, asked)
			}
			continue
		}
		v, err := abi.ParseVerdict([]byte(strings.NewReplacer("{{nonce}}", q.Nonce, "{{args_sha256}}", q.DocumentSHA256).Replace(text)), q)
		switch want, good := rulings[name]; {
		case good && (err != nil || v.Ruling != want):
			t.Errorf("%s: ruling %q, error %v, want %q", name, v.Ruling, err, want)
		case !good && mistakes[name] == "":
			t.Errorf("%s: not known here", name)
		case !good && (err == nil || !strings.Contains(err.Error(), mistakes[name])):
			t.Errorf("%s: error %v, want %q", name, err, mistakes[name])
		}
	}
	if want := len(rulings) + len(mistakes) + 2; len(docs) != want {
		t.Errorf("%d documents, want %d", len(docs), want)
	}
}
