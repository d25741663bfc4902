package abi

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden vectors from the documents below")

const (
	sha    = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	module = "sha256:" + sha
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// vectors are the documents under testdata, one for every kind and member. An SDK
// in another language must read those that a guest receives and write those that
// it returns. A vector is never changed once published; new ones are added.
var vectors = map[string]any{
	"tool_call": ToolCall{Format: Version, Kind: KindTool, Tool: "pay_invoice", ID: "call-3",
		Args: raw(`{"amount":1250.00,"currency":"EUR","note":"größer <b> \u2028"}`), Config: map[string]string{"currency": "EUR"},
		Confirmation: &Confirmation{Confirmed: true, Hint: "Pay 1250.00 EUR?", Payload: raw(`{"by":"u-9"}`)}, Now: "2026-03-01T09:00:00Z"},
	"tool_call_bare": ToolCall{Format: Version, Kind: KindTool, Tool: "get_weather", ID: "call-1", Args: raw(`{}`)},

	"tool_result":         ToolResult{Format: Version, Result: raw(`{"id":"p-1","paid":1250.00}`)},
	"tool_result_fail":    ToolResult{Format: Version, Fail: &Failure{Code: "unknown_place", Message: "no place called \"Qqq\""}},
	"tool_result_nothing": ToolResult{Format: Version},

	"hook_call_tool": HookCall{Format: Version, Kind: KindHook, Hook: AfterTool, Agent: "clerk", Tool: "get_weather", CallID: "call-1",
		Args: raw(`{"place":"Oslo"}`), Result: raw(`{"days":[]}`), Error: "no answer", Config: map[string]string{"unit": "C"}},
	"hook_call_model_request": HookCall{Format: Version, Kind: KindHook, Hook: BeforeModel, Agent: "clerk",
		Request: raw(`{"config":{"temperature":0.20},"contents":[{"parts":[{"text":"hi"}],"role":"user"}],"model":"m"}`)},
	"hook_call_model_response": HookCall{Format: Version, Kind: KindHook, Hook: AfterModel, Agent: "clerk",
		Response: raw(`{"content":{"parts":[{"functionCall":{"args":{},"id":"1","name":"f"}}],"role":"model"}}`)},
	"hook_call_message": HookCall{Format: Version, Kind: KindHook, Hook: OnUserMessage, Content: raw(`{"parts":[{"text":"hi"}],"role":"user"}`)},
	"hook_call_event":   HookCall{Format: Version, Kind: KindHook, Hook: OnEvent, Event: raw(`{"author":"clerk","id":"e-1"}`)},

	"hook_answer":          HookAnswer{Format: Version, Answer: raw(`{"ok":true}`), Args: raw(`{"place":"Oslo","unit":"C"}`)},
	"hook_answer_result":   HookAnswer{Format: Version, Result: raw(`{"days":[]}`)},
	"hook_answer_request":  HookAnswer{Format: Version, Request: raw(`{"model":"m"}`)},
	"hook_answer_response": HookAnswer{Format: Version, Response: raw(`{"content":{}}`)},
	"hook_answer_content":  HookAnswer{Format: Version, Content: raw(`{"role":"user"}`)},
	"hook_answer_event":    HookAnswer{Format: Version, Event: raw(`{"id":"e-1"}`)},
	"hook_answer_error":    HookAnswer{Format: Version, Error: "units are not known"},
	"hook_answer_nothing":  HookAnswer{Format: Version},

	"question_call": Question{Format: Version, Kind: KindGuard, Guard: "payment-limit", Phase: PhaseCall, Nonce: "q7Zk", DocumentSHA256: sha,
		Now: "2026-03-01T09:00:00Z", Tenant: "acme", App: "invoice-desk", Agent: "clerk", User: User{ID: "u-17", Roles: []string{"clerk"}},
		Session: "s-41", Run: "r-9", Step: 2,
		Call: &CallFacts{ID: "call-3", Tool: "pay_invoice", Known: true, Effects: Once, Module: module, DefinitionSHA256: sha,
			Args: raw(`{"amount":"1250.00","invoice":"INV-7"}`)},
		Grants: []string{"http POST pay.bank.example/v1/payments"}, Settings: raw(`{"ask_from":"1000"}`),
		Facts: Facts{Approved: &Approval{At: "2026-03-01T08:59:00Z", By: "u-9"}, SecretHits: []SecretHit{{Name: "BANK_TOKEN", At: "/invoice", Key: true}}}},
	"question_result": Question{Format: Version, Kind: KindGuard, Guard: "redact", Phase: PhaseResult, Nonce: "q7Zl", DocumentSHA256: sha,
		Now: "2026-03-01T09:00:00Z", Agent: "clerk", User: User{ID: "u-17"}, Session: "s-41", Run: "r-9",
		Call: &CallFacts{ID: "call-3", Tool: "pay_invoice", Effects: None, Args: raw(`{}`)}, Result: raw(`{"id":"p-1"}`)},

	"question_message": Question{Format: Version, Kind: KindGuard, Guard: "no-cards", Phase: PhaseMessage, Nonce: "q7Zm", DocumentSHA256: sha,
		Now: "2026-03-01T09:00:00Z", Agent: "clerk", User: User{ID: "u-17"}, Session: "s-41", Run: "r-9",
		Message: raw(`{"parts":[{"text":"Pay INV-7"}],"role":"user"}`)},
	"question_request": Question{Format: Version, Kind: KindGuard, Guard: "no-cards", Phase: PhaseRequest, Nonce: "q7Zn", DocumentSHA256: sha,
		Now: "2026-03-01T09:00:00Z", Agent: "clerk", User: User{ID: "u-17"}, Session: "s-41", Run: "r-9", Step: 1,
		Request: raw(`{"contents":[{"parts":[{"text":"Pay INV-7"}],"role":"user"}],"model":"m-1"}`)},
	"question_response": Question{Format: Version, Kind: KindGuard, Guard: "no-cards", Phase: PhaseResponse, Nonce: "q7Zo", DocumentSHA256: sha,
		Now: "2026-03-01T09:00:00Z", Agent: "clerk", User: User{ID: "u-17"}, Session: "s-41", Run: "r-9", Step: 1, Partial: true,
		Response: raw(`{"content":{"parts":[{"text":"The card is 4111"}],"role":"model"},"partial":true}`)},

	"verdict_hold":    Verdict{Nonce: "q7Zk", DocumentSHA256: sha, Ruling: RulingAllow, Hold: 4},
	"verdict_allow":   Verdict{Nonce: "q7Zk", DocumentSHA256: sha, Ruling: RulingAllow},
	"verdict_deny":    Verdict{Format: Version, Nonce: "q7Zk", DocumentSHA256: sha, Ruling: RulingDeny, Code: "over_limit", Reason: "payments of 5000 and more are not made here", Why: []Why{{Rule: "deny_from", At: "/amount", Saw: "7000"}}},
	"verdict_confirm": Verdict{Nonce: "q7Zk", DocumentSHA256: sha, Ruling: RulingConfirm, Code: "ask_from", Hint: "Pay 1250.00 EUR to INV-7?"},
	"verdict_narrow":  Verdict{Nonce: "q7Zk", DocumentSHA256: sha, Ruling: RulingNarrow, Grants: []string{"http GET api.example.com/v1/*"}},
	"verdict_rewrite": Verdict{Nonce: "q7Zk", DocumentSHA256: sha, Ruling: RulingRewrite, Document: raw(`{"limit":10}`)},

	"settings_call":         SettingsCall{Format: Version, Kind: KindSettings, Guard: "payment-limit", Settings: raw(`{"ask_from":"1000","deny_from":"5000"}`)},
	"settings_answer":       SettingsAnswer{Format: Version},
	"settings_answer_error": SettingsAnswer{Format: Version, Error: "ask_from is above deny_from"},

	"manifest": Manifest{ABI: Version, Name: "payments", Version: "1.0.0", Description: "Pays invoices.",
		Tools: []Tool{
			{Name: "pay_invoice", Description: "Pays one invoice.", Input: raw(`{"additionalProperties":false,"properties":{"invoice":{"type":"string"}},"required":["invoice"],"type":"object"}`), Output: raw(`{"type":"object"}`), Effects: Once, Confirm: true},
			{Name: "report", LongRunning: true, Effects: Idempotent},
			{Name: "lines", Streaming: true, Effects: None},
			{Name: "old", Export: "run_old", Raw: true}},
		Hooks:    HookPoints(),
		Guards:   []Guard{{Name: "payment-limit", Phases: []Phase{PhaseCall, PhaseResult}, Mutates: []Phase{PhaseResult}, Settings: raw(`{"type":"object"}`), Check: true, Export: "judge"}},
		Requests: []string{"http POST pay.bank.example/v1/payments", "secret use BANK_TOKEN at pay.bank.example"},
		Limits:   Limits{MemoryBytes: 32 << 20, WallMS: 2000, Fuel: 500_000_000, HostCalls: 10, OutputBytes: 65536, HTTPBytes: 131072, VarBytes: 4096},
		Config:   map[string]string{"currency": "EUR"}},
	"manifest_least": Manifest{ABI: Version, Name: "a", Version: "0", Tools: []Tool{{Name: "t"}}},

	"host_error":            ErrorReply{Code: CapabilityDenied, Message: "need http GET api.example.com/v1/x"},
	"host_log":              LogRequest{Level: "warn", Message: "three places, one asked for"},
	"host_http":             HTTPRequest{Method: "POST", URL: "https://pay.bank.example/v1/payments", Headers: map[string]string{"Idempotency-Key": "call-3"}, Secrets: []UseSecret{{Secret: "BANK_TOKEN", Header: "Authorization", Prefix: "Bearer "}}},
	"host_http_reply":       HTTPReply{Status: 201, Headers: map[string]string{"content-type": "application/json"}},
	"host_state_get":        StateGet{Key: "user:units"},
	"host_state_value":      StateValue{Found: true, Value: raw(`1.50`)},
	"host_state_absent":     StateValue{},
	"host_state_set":        StateSet{Values: map[string]json.RawMessage{"session:last": raw(`"p-1"`), "user:n": raw(`null`)}},
	"host_artifact_names":   ArtifactNames{Names: []string{"a.csv", "b.csv"}},
	"host_artifact_read":    ArtifactRead{Name: "a.csv", Version: 2, Offset: 65536},
	"host_artifact_save":    ArtifactSave{Name: "a.csv", Type: "text/csv"},
	"host_artifact_version": ArtifactVersion{Version: 3},
	"host_kv_key":           KVKey{Key: "calls:u-17"},
	"host_kv_set":           KVSet{Key: "seen:u-17", Value: raw(`{"n":1.50}`), TTLMillis: 3_600_000},
	"host_rego_builtin":     RegoRequest{Builtin: "sprintf"},
	"host_kv_add":           KVAdd{Key: "calls:u-17", N: 1, Most: 10, TTLMillis: 60_000},
	"host_kv_count":         KVCount{Added: true, Count: 4},
	"host_memory_search":    MemorySearch{Query: "invoice INV-7"},
	"host_memory_entries":   MemoryEntries{Entries: []MemoryEntry{{Author: "user", Text: "Pay INV-7, please.", Time: "2026-02-27T16:20:00Z"}}},
	"host_emit":             EmitRequest{Chunk: raw(`{"n":3,"text":"ERR disk"}`)},
	"host_confirm":          ConfirmRequest{Hint: "Pay 1250.00?", Payload: raw(`{"amount":"1250.00"}`)},
	"host_transfer":         TransferRequest{Agent: "billing"},
}

// TestGolden decodes every vector as a strict document and encodes it again to the
// very bytes of the file.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, ok := vectors[strings.TrimSuffix(filepath.Base(file), ".json")]; !ok {
			t.Errorf("%s: not a vector of this test", file)
		}
	}
	for name, document := range vectors {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".json")
			made, err := Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, append(made, '\n'), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.TrimSuffix(data, []byte("\n"))
			if !bytes.Equal(made, want) {
				t.Errorf("made %s\nfile %s", made, want)
			}
			into := reflect.New(reflect.TypeOf(document))
			if err := Decode(data, into.Interface()); err != nil {
				t.Fatal(err)
			}
			again, err := Marshal(into.Interface())
			if err != nil || !bytes.Equal(again, want) {
				t.Errorf("got  %s, error %v\nfile %s", again, err, want)
			}
			if canonical, err := Canonical(data); err != nil || !bytes.Equal(canonical, want) {
				t.Errorf("file is not canonical: %s, error %v", canonical, err)
			}
		})
	}
}

// TestGoldenAnswersAreAccepted checks the vectors that a guest writes with the
// parsers that the host uses.
func TestGoldenAnswersAreAccepted(t *testing.T) {
	points := map[string]HookPoint{"hook_answer_result": AfterTool, "hook_answer_request": BeforeModel, "hook_answer_response": AfterModel,
		"hook_answer_content": OnUserMessage, "hook_answer_event": OnEvent}
	for name, document := range vectors {
		data, err := Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		switch document.(type) {
		case ToolResult:
			_, err = ParseToolResult(data)
		case HookAnswer:
			point, ok := points[name]
			if !ok {
				point = BeforeTool
			}
			_, err = ParseHookAnswer(data, point)
		case Verdict:
			phase := PhaseCall
			if name == "verdict_hold" {
				phase = PhaseResponse
			}
			_, err = ParseVerdict(data, &Question{Phase: phase, Nonce: "q7Zk", DocumentSHA256: sha})
		case Manifest:
			_, err = ParseManifest(data)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGoldenIsComplete checks that every member of every document is in a vector.
func TestGoldenIsComplete(t *testing.T) {
	seen := map[reflect.Type]map[string]bool{}
	for _, document := range vectors {
		fill(seen, reflect.ValueOf(document))
	}
	for typ, fields := range seen {
		for f := range typ.Fields() {
			if !fields[f.Name] {
				t.Errorf("%s.%s is in no vector", typ.Name(), f.Name)
			}
		}
	}
	for _, name := range HookPoints() {
		if !slices.Contains(vectors["manifest"].(Manifest).Hooks, name) {
			t.Errorf("hook %s is in no vector", name)
		}
	}
}

func fill(seen map[reflect.Type]map[string]bool, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(seen, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(seen, v.Index(i))
		}
	case reflect.Struct:
		if seen[v.Type()] == nil {
			seen[v.Type()] = map[string]bool{}
		}
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				seen[v.Type()][v.Type().Field(i).Name] = true
				fill(seen, v.Field(i))
			}
		}
	}
}
