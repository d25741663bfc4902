// Package flow runs agents: it builds requests, calls a model, runs the tools
// the model asks for, asks guards and people, and turns all of it into the
// events of a session. Its behaviour is that of ADK-Go v2.4.0, with the
// differences that docs/specification.md lists.
//
// An [Agent] is a struct literal; a [Runner] runs one against a session store.
// One user message to its final answer is a run (ADK's invocation); one model
// call and the tool calls it asks for is a step.
//
// # One door
//
// Every tool call goes through one dispatcher (dispatch.go), whichever way it
// came: before-tool hooks, schema check, guards, confirmation, the durable
// intent, the handler, its result, and the way back. A handler takes a [Permit],
// which nothing but the dispatcher can make.
//
// A guard that fails in any way denies, and nothing rewrites a denial.
package flow
