package policies_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// The fuel of a guard is enough for what a guard in Go reads: arguments of 100 KB
// and a conversation of 64 KB, whatever they are made of.
func TestDocumentsFitIntoFuel(t *testing.T) {
	g := ceiling(t, host.Limits{Wall: time.Minute})
	call := func(items string, n int) *abi.Question {
		return callQuestion(`{"amount":12.50,"to":[` + strings.Repeat(items+",", n/len(items)) + `{}]}`)
	}
	request := func(items string, n int) *abi.Question {
		q := callQuestion(`{}`)
		q.Phase, q.Call = abi.PhaseRequest, nil
		q.Request = json.RawMessage(`{"contents":[` + strings.Repeat(items+",", n/len(items)) + `{}],"model":"m"}`)
		q.DocumentSHA256 = abi.Digest(q.Request)
		return q
	}
	for name, q := range map[string]*abi.Question{
		"text":           call(`"`+strings.Repeat("some text ", 1000)+`"`, 100_000),
		"text, escaped":  call(`"`+strings.Repeat(`a \"word\"\n`, 1000)+`"`, 100_000),
		"lists":          call(`{"a":[1,2],"b":"some text"}`, 100_000),
		"conversation":   request(`{"parts":[{"text":"some text of a usual length, say this"}],"role":"user"}`, 64_000),
		"calls of tools": request(`{"parts":[{"functionCall":{"args":{"amount":"12.50","to":"alice"},"id":"c1","name":"pay"}}],"role":"model"}`, 64_000),
	} {
		if v, err := g.Judge(t.Context(), q); err != nil || v.Ruling != abi.RulingAllow {
			t.Errorf("%s: verdict %q, error %v", name, v.Ruling, err)
		}
	}
}
