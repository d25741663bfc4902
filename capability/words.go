package capability

import (
	"fmt"
	"strings"
)

// plainWords are the sentences for kinds without a pattern.
var plainWords = map[string]string{
	"clock":        "read the time of day",
	"random":       "draw random numbers that cannot be repeated",
	"log":          "write lines to the operator's log",
	"emit":         "send parts of a result while it runs",
	"confirm":      "ask a person to confirm a call",
	"transfer":     "hand the conversation to another agent",
	"escalate":     "hand control back to the agent above",
	"skip-summary": "have a result shown as it is, without the model's own words",
	kindMemory:     "search what is remembered of this user",
}

// Words says in plain words what the line allows, for someone who decides about
// it: "send GET requests to api.weather.example over https, port 443, paths below
// /v1/". It is a phrase without a full stop.
func (c Capability) Words() string {
	verbs := c.verbs.list(c.kind)
	switch c.kind {
	case kindHTTP:
		at := ""
		if c.private {
			at = ", at private addresses too"
		}
		return fmt.Sprintf("send %s requests to %s over %s, port %d, %s%s",
			and(verbs), hostWords(c.host), c.scheme, c.port, pathWords(c.path), at)
	case kindState:
		return and(relabel(verbs, "change")) + " " + stateWords(c.name)
	case kindArtifact:
		scope, name := cutScope(kindArtifact, c.name)
		whose := "of this session"
		if scope != "" {
			whose = "that this user's sessions share"
		}
		return and(relabel(verbs, "save")) + " " + named("artifacts "+whose, "the artifact %s "+whose, name)
	case kindSecret:
		return fmt.Sprintf("have the host put %s into requests to %s; never sees it",
			named("any secret", "%s", c.name), hostWords(c.host))
	case kindKV:
		return and(relabel(verbs, "change")) + " the counters and values kept between calls"
	}
	return plainWords[c.kind]
}

// stateWords describes a pattern of state keys. App state comes first in a
// reviewer's mind: what one user's call writes there, all others read.
func stateWords(pattern string) string {
	scope, key := cutScope(kindState, pattern)
	whose := map[string]string{
		"session:": "of this session",
		"user:":    "that this user's sessions share",
		"app:":     "every user of this app reads",
		"temp:":    "of this run",
	}[scope]
	return named("values "+whose, "the value %s "+whose, key)
}

// named describes what a name pattern covers: all of them, those that look like
// the pattern, or the one.
func named(all, one, pattern string) string {
	switch {
	case pattern == "*":
		return all
	case strings.Contains(pattern, "*"):
		return all + " named " + pattern
	}
	return fmt.Sprintf(one, pattern)
}

func hostWords(host string) string {
	if host == "**" {
		return "any host"
	}
	if below, ok := strings.CutPrefix(host, "**."); ok && !strings.Contains(below, "*") {
		return "any host below " + below
	}
	if below, ok := strings.CutPrefix(host, "*."); ok && !strings.Contains(below, "*") {
		return "any host directly below " + below
	}
	if strings.Contains(host, "*") {
		return "any host like " + host
	}
	return bracket(host)
}

func pathWords(path string) string {
	if path == "/*" {
		return "any path"
	}
	if below, ok := strings.CutSuffix(path, "*"); ok && !strings.Contains(below, "*") {
		return "paths below " + below
	}
	if strings.Contains(path, "*") {
		return "paths like " + path
	}
	return "path " + path
}

// relabel replaces the verb "write" by what it means for the kind.
func relabel(verbs []string, write string) []string {
	for i, v := range verbs {
		if v == "write" {
			verbs[i] = write
		}
	}
	return verbs
}

// and joins words as in "a, b and c".
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
