package lint

import (
	"fmt"
	"go/ast"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/jail"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// TestTables compares the tables of figures in the documents with the code.
func TestTables(t *testing.T) {
	for _, table := range []struct{ file, want string }{
		{"README.md", callLimits()},
		{"docs/specification.md", callLimits()},
		{"docs/specification.md", runLimits(t)},
		{"docs/specification.md", moduleLimits()},
		{"docs/specification.md", compileLimits()},
		{"docs/guest-abi.md", documentLimits()},
		{"docs/guest-abi.md", codes(t)},
		{"docs/guest-abi.md", hookPoints()},
	} {
		data, err := os.ReadFile("../../" + table.file)
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(data), "\n"+table.want) {
			t.Errorf("%s: a table is not as the code has it; want\n%s", table.file, table.want)
		}
	}
}

func table(head string, rows ...[]any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", head, strings.Repeat("---|", strings.Count(head, "|")+1))
	for _, row := range rows {
		b.WriteString("|")
		for _, cell := range row {
			fmt.Fprintf(&b, " %s |", figure(cell))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// figure writes a value as documents do.
func figure(v any) string {
	switch v := v.(type) {
	case int:
		return grouped(v)
	case int64:
		switch {
		case v >= 1<<20 && v%(1<<20) == 0:
			return fmt.Sprintf("%d MiB", v>>20)
		case v >= 1<<10 && v%(1<<10) == 0:
			return fmt.Sprintf("%d KiB", v>>10)
		}
		return grouped(int(v)) + " bytes"
	case time.Duration:
		switch {
		case v >= time.Hour:
			return fmt.Sprintf("%d h", v/time.Hour)
		case v >= time.Minute:
			return fmt.Sprintf("%d min", v/time.Minute)
		case v >= time.Second:
			return fmt.Sprintf("%d s", v/time.Second)
		}
		return fmt.Sprintf("%d ms", v/time.Millisecond)
	}
	return fmt.Sprint(v)
}

func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

func callLimits() string {
	tool, guard := host.DefaultLimits(abi.KindTool), host.DefaultLimits(abi.KindGuard)
	return table("one call | tool | hook, guard",
		[]any{"memory", tool.MemoryBytes, guard.MemoryBytes},
		[]any{"time", tool.Wall, guard.Wall},
		[]any{"fuel", int(tool.Fuel), int(guard.Fuel)},
		[]any{"frames", tool.Depth, guard.Depth},
		[]any{"making an instance", tool.Startup, guard.Startup},
		[]any{"input", tool.InputBytes, guard.InputBytes},
		[]any{"output", tool.OutputBytes, guard.OutputBytes},
		[]any{"host calls", tool.HostCalls, guard.HostCalls},
		[]any{"kept in state, kv and artifacts", tool.StoredBytes, guard.StoredBytes},
		[]any{"log", tool.LogBytes, guard.LogBytes},
		[]any{"HTTP requests", tool.HTTPRequests, guard.HTTPRequests},
		[]any{"HTTP body, each way", tool.HTTPBytes, guard.HTTPBytes},
		[]any{"values of Extism's variables", tool.VarBytes, guard.VarBytes})
}

func runLimits(t *testing.T) string {
	r, err := flow.NewRunner(&flow.Agent{Name: "a"}, session.NewMemory(), flow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := reflect.ValueOf(r).Elem().FieldByName("cfg")
	number := func(name string) int { return int(cfg.FieldByName("Limits").FieldByName(name).Int()) }
	return table("one run | default",
		[]any{"steps (model calls, those of agents inside included)", number("Steps")},
		[]any{"agents that run inside calls of tools, one inside the other", number("Depth")},
		[]any{"tool calls of one step that are looked at", number("CallsPerStep")},
		[]any{"tool calls that run at the same time", number("Parallel")},
		[]any{"the whole run", time.Duration(number("Wall"))},
		[]any{"one judgement, waiting included", time.Duration(number("Guard"))},
		[]any{"a question to a person stays open", time.Duration(cfg.FieldByName("Expires").Int())},
		[]any{"a result, as JSON", int64(flow.MaxResult)},
		[]any{"objects and arrays in a result", flow.MaxContainers},
		[]any{"a result that a model is shown whole, as JSON", int64(flow.MaxShown)})
}

func moduleLimits() string {
	return table("one module | most",
		[]any{"the whole module", int64(wasmbin.MaxModuleBytes)},
		[]any{"function types", wasmbin.MaxTypes},
		[]any{"parameters of one type", wasmbin.MaxParams},
		[]any{"results of one type", wasmbin.MaxResults},
		[]any{"imports", wasmbin.MaxImports},
		[]any{"functions", wasmbin.MaxFunctions},
		[]any{"tables", wasmbin.MaxTables},
		[]any{"entries of all tables", wasmbin.MaxTableEntries},
		[]any{"memories", wasmbin.MaxMemories},
		[]any{"globals", wasmbin.MaxGlobals},
		[]any{"exports", wasmbin.MaxExports},
		[]any{"element segments", wasmbin.MaxElements},
		[]any{"items of all element segments", wasmbin.MaxElementItems},
		[]any{"data segments", wasmbin.MaxData},
		[]any{"one function body", int64(wasmbin.MaxBodyBytes)},
		[]any{"locals of one function", wasmbin.MaxLocals},
		[]any{"locals of all functions", wasmbin.MaxLocalsTotal},
		[]any{"blocks and branches of one function", wasmbin.MaxBranches},
		[]any{"blocks inside each other", wasmbin.MaxNesting},
		[]any{"labels of one `br_table`", wasmbin.MaxLabels},
		[]any{"labels of all `br_table`", wasmbin.MaxLabelsTotal},
		[]any{"depth of loops times locals written, of one function", wasmbin.MaxLoopVars},
		[]any{"depth of loops times locals written, of all functions", wasmbin.MaxLoopVarsSum},
		[]any{"a name", int64(wasmbin.MaxNameBytes)},
		[]any{"custom sections", wasmbin.MaxCustom})
}

func compileLimits() string {
	l := jail.DefaultLimits()
	return table("compiling one module | most",
		[]any{"processor time", l.CPU},
		[]any{"time", l.Wall},
		[]any{"resident memory", l.Resident},
		[]any{"native code", l.FileBytes})
}

func documentLimits() string {
	return table("bound | most",
		[]any{"nesting of arguments, a result, a state value, a payload", abi.MaxDepth},
		[]any{"nesting of a document that holds them", abi.MaxNesting},
		[]any{"a manifest", int64(abi.MaxManifestBytes)},
		[]any{"tools of a module, and guards", abi.MaxTools},
		[]any{"requests of a module", abi.MaxRequests},
		[]any{"a description", int64(abi.MaxDescriptionBytes)},
		[]any{"a reason, a hint, a member of `why`, in characters", abi.MaxReasonChars},
		[]any{"entries of `why`", abi.MaxWhy},
		[]any{"bytes of one `artifact_read`", int64(abi.MaxChunk)},
		[]any{"a value of `kv`", int64(abi.MaxKVBytes)},
		[]any{"a query of `memory_search`", int64(abi.MaxQueryBytes)},
		[]any{"entries that one `memory_search` returns", abi.MaxMemoryEntries},
		[]any{"texts of all of them", int64(abi.MaxMemoryBytes)})
}

// codes lists the codes in the order of their declaration.
func codes(t *testing.T) string {
	var rows [][]any
	for _, f := range repository(t).Go {
		if f.Path != "sdk/abi/code.go" {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
					code, _ := literal(spec.Values[0])
					rows = append(rows, []any{"`" + code + "`", abi.Code(code).Sentence()})
				}
			}
			return true
		})
	}
	return table("code | what a model reads", rows...)
}

func hookPoints() string {
	var b strings.Builder
	for i, p := range abi.HookPoints() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + string(p) + "`")
	}
	return b.String()
}

// TestContractIsWhole checks that docs/guest-abi.md has every function and every
// golden document of the contract.
func TestContractIsWhole(t *testing.T) {
	tree := repository(t)
	text := string(tree.Files["docs/guest-abi.md"])
	for _, name := range abi.HostFunctions() {
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("no row for %s", name)
		}
	}
	for _, name := range tree.sorted(".json") {
		base, golden := strings.CutPrefix(name, "sdk/abi/testdata/")
		if !golden || strings.Contains(base, "/") || strings.Contains(text, "<!-- from "+name+" -->") {
			continue
		}
		if !slices.Contains(variants, strings.TrimSuffix(base, ".json")) {
			t.Errorf("%s is not shown", name)
		}
	}
}

// variants are golden documents of a shape that another one shows.
var variants = []string{
	"hook_answer_content", "hook_answer_event", "hook_answer_request", "hook_answer_response", "hook_answer_result",
	"hook_call_event", "hook_call_message", "hook_call_model_response", "question_result", "tool_call_bare",
}

// TestExamples checks that the documents which docs/guest-abi.md shows are those
// of the golden files.
func TestExamples(t *testing.T) {
	data, err := os.ReadFile("../../docs/guest-abi.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, b := range blocks("docs/guest-abi.md", data) {
		if b.kind != "json" {
			continue
		}
		m := source.FindStringSubmatch(b.before)
		if m == nil {
			t.Errorf("line %d: JSON without <!-- from PATH --> before it", b.line)
			continue
		}
		golden, err := os.ReadFile("../../" + m[1])
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := abi.Canonical([]byte(strings.Join(b.lines, "\n")))
		if err != nil {
			t.Errorf("line %d: %v", b.line, err)
		} else if string(got) != strings.TrimSpace(string(golden)) {
			t.Errorf("line %d: is not %s", b.line, m[1])
		}
		shown++
	}
	if shown == 0 {
		t.Error("no document is shown")
	}
}
