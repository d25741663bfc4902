package flow

import (
	"cmp"
	"encoding/json"
	"fmt"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// This file is what a guard's rewrite may not do: a guard can take something away or
// put other words in its place, and nothing that happens may begin with it.

// narrowsRequest refuses a rewritten request that gives the model more than the one
// before: a tool it was not offered, or other safety settings or cached content.
func narrowsRequest(before, after *requestDocument) error {
	if after.Config == nil { // the request keeps its own
		return nil
	}
	var given genai.GenerateContentConfig
	if before.Config != nil {
		given = *before.Config
	}
	for _, stays := range []struct {
		name string
		a, b any
	}{
		{"safetySettings", given.SafetySettings, after.Config.SafetySettings},
		{"modelArmorConfig", given.ModelArmorConfig, after.Config.ModelArmorConfig},
		{"cachedContent", given.CachedContent, after.Config.CachedContent},
	} {
		if jsonText(stays.a) != jsonText(stays.b) {
			return fmt.Errorf("request: config.%s has to stay as it is", stays.name)
		}
	}
	functions, others := offered(given.Tools)
	moreFunctions, moreOthers := offered(after.Config.Tools)
	for name := range moreFunctions {
		if !functions[name] {
			return fmt.Errorf("request: config.tools: function %q was not offered", name)
		}
	}
	for other := range moreOthers {
		if !others[other] {
			return fmt.Errorf("request: config.tools: %s was not offered", other)
		}
	}
	return nil
}

// offered returns the names of the functions among tools, and the model's own tools
// with their settings.
func offered(tools []*genai.Tool) (functions, others map[string]bool) {
	functions, others = map[string]bool{}, map[string]bool{}
	for _, t := range tools {
		if t == nil {
			continue
		}
		for _, f := range t.FunctionDeclarations {
			if f != nil {
				functions[f.Name] = true
			}
		}
		own := *t
		own.FunctionDeclarations = nil
		var members map[string]json.RawMessage
		if err := abi.Decode([]byte(jsonText(own)), &members); err != nil {
			others[err.Error()] = true
		}
		for name, settings := range members {
			others[name+" "+string(settings)] = true
		}
	}
	return functions, others
}

// narrowsResponse refuses a rewritten response with a call, or a response to one, that
// was not in the one before. Its arguments may be others: they are judged as those of
// every call.
func narrowsResponse(before, after *session.Response) error {
	left := map[string]int{}
	for _, p := range parts(before.Content) {
		left[calling(p)]++
	}
	for _, p := range parts(after.Content) {
		if c := calling(p); c != "" {
			if left[c]--; left[c] < 0 {
				return fmt.Errorf("response: %s was not in it", c)
			}
		}
	}
	return nil
}

// calling names the call or the response that a part is; "" if it is neither.
func calling(p *genai.Part) string {
	switch {
	case p == nil:
	case p.FunctionCall != nil:
		return fmt.Sprintf("call %q of %q", cmp.Or(p.FunctionCall.ID, "without id"), p.FunctionCall.Name)
	case p.FunctionResponse != nil:
		return fmt.Sprintf("response to call %q of %q", cmp.Or(p.FunctionResponse.ID, "without id"), p.FunctionResponse.Name)
	}
	return ""
}
