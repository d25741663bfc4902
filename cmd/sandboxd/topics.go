package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// topics are what help explains that is no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "grants", Short: "How a capability is written, and what each line allows", Long: grantsTopic()},
		{Use: "limits", Short: "What a call may use at most", Long: limitsTopic()},
		{Use: "errors", Short: "What each code means, and what to do about it", Long: errorsTopic()},
		{Use: app.FileName, Short: "What an app's file may say", Long: fileTopic()},
	}
}

// exampleGrants has at least one line of every kind that a host function asks for.
var exampleGrants = []string{
	"http GET,POST api.example.com/v1/*", "http GET *.example.com/status", "http GET **.example.com/*",
	"http GET private 10.1.2.3:8080/*", "http GET http://api.example.com/*",
	"state read,write session:cart.*", "state read user:unit", "state write app:*",
	"artifact read *.csv", "artifact write reports/*",
	"clock", "random", "log", "emit", "confirm", "transfer", "escalate", "skip-summary",
}

func grantsTopic() string {
	var b strings.Builder
	b.WriteString("A capability is one line: a kind, verbs joined by commas, a pattern. A plugin asks for\nlines, and a call has what was both asked for and granted.\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range exampleGrants {
		c, err := capability.Parse(line)
		if err != nil {
			panic("sandboxd: " + err.Error())
		}
		wide := ""
		if c.Wide() {
			wide = "  (wide)"
		}
		fmt.Fprintf(w, "  %s\t%s%s\n", line, c.Words(), wide)
	}
	w.Flush()
	b.WriteString("\nIn a host * is one label and ** is one or more. In a path * at the end covers all below,\nelsewhere one segment. In names and keys * is any run of characters.")
	return b.String()
}

func limitsTopic() string {
	var b strings.Builder
	b.WriteString("One call may use at most this. A manifest, an app and --limit can only lower it.\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	tool, guard := host.DefaultLimits(abi.KindTool), host.DefaultLimits(abi.KindGuard)
	fmt.Fprint(w, "  \ttool\thook, guard\n")
	for _, row := range []struct{ name, tool, guard string }{
		{"memory", size(tool.MemoryBytes), size(guard.MemoryBytes)},
		{"wall", took(tool.Wall), took(guard.Wall)},
		{"fuel", fuel(tool.Fuel), fuel(guard.Fuel)},
		{"input", size(tool.InputBytes), size(guard.InputBytes)},
		{"output", size(tool.OutputBytes), size(guard.OutputBytes)},
		{"host calls", count(int64(tool.HostCalls)), count(int64(guard.HostCalls))},
		{"log", size(tool.LogBytes), size(guard.LogBytes)},
		{"http requests", count(int64(tool.HTTPRequests)), count(int64(guard.HTTPRequests))},
		{"http body", size(tool.HTTPBytes), size(guard.HTTPBytes)},
		{"variables", size(tool.VarBytes), size(guard.VarBytes)},
	} {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", row.name, row.tool, row.guard)
	}
	w.Flush()
	b.WriteString("\nA guard or hook sends no request.")
	return b.String()
}

func errorsTopic() string {
	var b strings.Builder
	b.WriteString("An error ends with its code in brackets; models, logs and JSON have it, too. sandboxd\nexplain says more of a code, and most of a call that ended with it.\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, code := range slices.Sorted(maps.Keys(meanings)) {
		fmt.Fprintf(w, "  %s\t%s\n", code, meanings[code].what)
	}
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// fileTopic lists the keys of agent.yaml, as the schema has them that its reader is made of.
func fileTopic() string {
	var b strings.Builder
	fmt.Fprintf(&b, "An app is a folder with %s. What is not written is off, and a key that is not\nhere is an error. A key with a star must be there; [] is a list, and NAME a key of one's own.\n\n", app.FileName)
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(app.Schema(), s); err != nil {
		panic("sandboxd: " + err.Error())
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	listKeys(w, "", s)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

func listKeys(w io.Writer, path string, s *jsonschema.Schema) {
	for _, name := range members(s) {
		p, star := s.Properties[name], ""
		if slices.Contains(s.Required, name) {
			star = "*"
		}
		about, at := p.Description, path+name
		for p.Items != nil {
			at, p = at+"[]", p.Items
		}
		if p.AdditionalProperties != nil && p.Properties == nil && p.AdditionalProperties.Not == nil {
			at, p = at+".NAME", p.AdditionalProperties
		}
		if p.Ref != "" {
			about += ": as agent"
		}
		fmt.Fprintf(w, "  %s%s\t%s\n", at, star, about)
		listKeys(w, at+".", p)
	}
}
