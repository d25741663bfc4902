package conformance

import (
	"encoding/json"
	"errors"
	"strings"
)

// deviations turns, for each vector whose recorded behaviour we do not follow,
// the recorded expectation into the one that DEVIATIONS.md words, so that
// everything else is still compared.
var deviations = map[string]func(want map[string]any) error{
	// The second use of an approval runs nothing. The model is asked as after any
	// other message: the last thing it sees is its own answer, so it is nudged.
	"confirm_approval_repeated_later": func(want map[string]any) error {
		turns := want["turns"].([]any)
		answer := last(turns[1].(map[string]any)["events"]).(map[string]any)["content"]
		repeated := turns[2].(map[string]any)
		repeated["events"] = repeated["events"].([]any)[1:]
		request := last(want["model_requests"]).(map[string]any)
		nudge := map[string]any{"role": "user", "parts": []any{map[string]any{
			"text": "Continue processing previous requests as instructed. Exit or provide a summary if no more outputs are needed."}}}
		request["contents"] = append(request["contents"].([]any), answer, nudge)
		want["tool_calls"] = want["tool_calls"].([]any)[:1]
		dropBeforeLast(want, "session_events")
		return nil
	},
	// The same stored request runs once.
	"confirm_duplicate_identical_request": func(want map[string]any) error {
		turn := want["turns"].([]any)[0].(map[string]any)
		turn["events"] = turn["events"].([]any)[1:]
		want["tool_calls"] = want["tool_calls"].([]any)[:1]
		dropBeforeLast(want, "session_events")
		return nil
	},
	// The run ends with one event that carries what before_run returned, and the
	// user's message is stored once.
	"plugin_before_run_short_circuit": func(want map[string]any) error {
		event := want["turns"].([]any)[0].(map[string]any)["events"].([]any)[0].(map[string]any)
		event["author"] = "root_agent"
		event["content"] = map[string]any{"role": "model", "parts": []any{map[string]any{"text": "maintenance"}}}
		stored := last(want["session_events"]).(map[string]any)
		stored["author"], stored["role"] = "root_agent", "model"
		return nil
	},
	// The panic's own text, without a stack.
	"tool_panic": func(want map[string]any) error {
		data, err := json.Marshal(want)
		if err != nil {
			return err
		}
		cut := strings.ReplaceAll(string(data), `\nstack: \u003cstack\u003e`, "")
		if cut == string(data) {
			return errors.New("no stack in the recorded text")
		}
		d := json.NewDecoder(strings.NewReader(cut))
		d.UseNumber()
		clear(want)
		return d.Decode(&want)
	},
}

func last(v any) any {
	l := v.([]any)
	return l[len(l)-1]
}

func dropBeforeLast(m map[string]any, name string) {
	l := m[name].([]any)
	m[name] = append(l[:len(l)-2:len(l)-2], l[len(l)-1])
}
