// Package mcp offers the tools of a server that speaks the [Model Context
// Protocol] as a [flow.Toolset]. Calls go through flow's dispatcher like any
// other: hooks, guards, confirmation and records apply.
//
// # What a server can say
//
// A server is not trusted. Of a tool its name, description and schemas count;
// titles, icons and annotations such as readOnlyHint do not, so every tool has
// effects that happen once ([abi.Once]). A tool is left out, and a warning
// logged, if its name is not one that models take (a letter or underscore, then
// letters, digits, underscores, dots or hyphens, 64 at most), belongs to the
// framework or was listed before, or if a schema cannot be used. The others stay:
// what is left out cannot be called. A list of more than 512 tools, of more than
// 512 pages or of more than 1 MiB is an error. The client offers servers
// nothing: no roots, no sampling, no elicitation.
//
// # Results
//
// A result is {"output": …}: the structured content if there is some, which must
// fit the schema that the tool was listed with, or else all blocks of the content
// as text, in ADK's format. Numbers of structured content keep their text. It is
// one strict document: two members of one name, or a number that no float64 comes
// near, make the result an error. A result may be as long as that of any tool (see
// [flow.MaxShown] for what a model sees of a long one), but a message of more than
// 16 MiB ends the connection. A call ends with its context, at most two seconds
// later if a server does not read, which ends the connection too. It is never made
// again: one whose connection broke may have happened.
//
// Arguments are checked against the listed schema before the server sees them,
// which ADK leaves to the server.
//
// [Model Context Protocol]: https://modelcontextprotocol.io/specification
package mcp
