// Package sessiontest holds the contract that every [session.Store] must pass.
package sessiontest

import (
	"testing"

	"github.com/sandboxd/sandboxd/session"
)

// TestStore tests the contract of [session.Store] as subtests of t. It calls open
// for each of them; open returns an empty store, and has t close it if that is
// needed. Run it with the race detector.
func TestStore(t *testing.T, open func(t *testing.T) session.Store) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, s session.Store)
	}{
		{"create", testCreate},
		{"key", testKey},
		{"get", testGet},
		{"list", testList},
		{"delete", testDelete},
		{"append order", testAppendOrder},
		{"append refuses", testAppendRefuses},
		{"append races", testAppendRaces},
		{"state scopes", testScopes},
		{"state of create", testCreateState},
		{"state numbers", testNumbers},
		{"copies of sessions", testSessionCopies},
		{"calls", testCalls},
		{"call ends", testCallEnds},
		{"call races", testCallRaces},
		{"copies of calls", testCallCopies},
		{"ask", testAsk},
		{"questions of an app", testAppQuestions},
		{"decide", testDecide},
		{"decide refuses", testDecideRefuses},
		{"decide elsewhere", testDecideElsewhere},
		{"decide races", testDecideRaces},
		{"spend", testSpend},
		{"spend races", testSpendRaces},
		{"copies of questions", testQuestionCopies},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open(t)) })
	}
}
