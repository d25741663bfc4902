// Package script is a [flow.Model] that answers from a file: for demonstrations
// and tests that run offline. The file says which calls are made and quotes their
// results by reference. What a tool did wrong, the answer gets wrong, and what a
// tool did not say is an error of the model: never a gap in the answer.
//
// # The file
//
// YAML, or JSON, of at most 1 MiB. Keys that are not listed here, keys given
// twice, aliases and second documents are errors that name file and line.
//
//	format: 1
//	rules:
//	  - when: {matches: 'weather in (\w+)'}
//	    reply:
//	      - think: The forecast knows.
//	        call:
//	          - {tool: forecast, id: sky, args: {place: "{{match.1}}", days: 2}}
//	      - either:
//	          - if_error: sky
//	            say: "I may not: {{sky.error}}"
//	          - say: "{{sky.days.0.min_c|%.1f}} to {{sky.days.0.max_c|%.1f}} °C."
//	  - reply:
//	      - say: I only know the weather.
//
// The first rule whose when holds is used; a rule without when always holds, so
// it is the last. All conditions of a when must hold:
//
//   - contains: TEXT is somewhere in the user's text;
//   - matches: the regular expression (package [regexp]) matches in the user's
//     text. Both ignore case; (?-i) in an expression turns that off. A rule has
//     one of them at most;
//   - after: the results that came last, after any call, are or include that of a
//     call to this tool, of call-N, or of the call with this id. Such a rule has
//     one step.
//
// The reply is a list of steps. Every request of a turn is answered by the next
// step: the first by the first, the one with the results of its calls by the
// second. A request beyond the last step is an error. A step is one of
//
//   - think, say and call in any combination: a thought, a text, and a list of
//     calls {tool, args, id}, of which only tool is required;
//   - error: the model fails with this text;
//   - either: a list of such steps, each of which may have if_error: CALL, which
//     holds if that call's result has an error. The first that holds is used;
//     none is an error.
//
// # References
//
// Texts, and the strings in args, may hold references:
//
//   - {{match.N}}, {{match.NAME}}: a group of matches; {{match.0}} is all that
//     matched or, with contains, the text as the user wrote it;
//   - {{call-N.PATH}}: in the result of the N-th call of this turn, counted from
//     1 in the order in which they were made, and over all rules;
//   - {{ID.PATH}}: in the result of the newest call of this turn with that id
//     (lower case letters, digits and _).
//
// A path is names of keys and indexes of lists, from 0, with dots between them;
// a key with a dot in it cannot be named. Without a path it is the whole result.
// A string is quoted as it is, a number with the text that it has in JSON, and
// anything else as JSON. {{...|%.2f}} rounds a number to that many digits, 0 to 9.
//
// An argument that is one reference and nothing else keeps the type of what it
// refers to, unless it is rounded, which makes a text; {{...|number}} makes a
// number of a string, for what users write.
//
// A reference to a call that was not made or has no result yet, to a path that
// is not there, into a result with an error (except to that error), or to a group
// that matched nothing makes the model fail. So does a request for which no rule
// holds.
//
// # Turns
//
// A turn starts with the newest message of the user; what flow itself adds to a
// request under the user's role (what another agent said, an artifact, the nudge
// to go on) is none. The parts of the message that are text, joined by newlines,
// are the user's text.
// The step is the number of model contents since. So all a [Model] knows is in
// the request: it has no state, and a session can go on in another process. On
// the wire the ids of calls are call-N or call-N-ID, with N counted through the
// contents of the request, which makes them unique in a session unless its history
// is withheld from the model; in the first turn N is that of the references.
package script
