package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A meaning says what a code stands for, and what to do about it: where a call is
// explained, with its app for APP, and likewise TOOL, GUARD, LINE and QUESTION.
type meaning struct{ what, then string }

// meanings are the codes that a call, a module or a command can end with.
var meanings = map[abi.Code]meaning{
	abi.OK:                   {"It was done.", ""},
	abi.ModuleMalformed:      {"The file is no core module, or it is broken.", "sandboxd plugin inspect FILE names every reason"},
	abi.ModuleLimit:          {"The module is larger or deeper than a module may be.", "sandboxd plugin inspect FILE names every reason"},
	abi.ModuleImportDenied:   {"The module imports what there is not, or what its kind may not have: a guard has no network.", "sandboxd plugin inspect FILE lists what it imports"},
	abi.ModuleABI:            {"The module does not keep the contract of guests: no manifest, no such export, or another version.", "sandboxd plugin build, or plugin pack for a module that was built elsewhere"},
	abi.ModuleCompileTimeout: {"Compiling the module took longer than it may, or more memory.", "make the module smaller"},
	abi.DigestMismatch:       {"The module is not the one whose digest is written in " + app.FileName + ".", "sandboxd plugin inspect --diff, then sandboxd config pin APP if the change is yours"},
	abi.VersionConflict:      {"Two tools of one agent have one name.", "give one another name: tools: {NAME: {as: OTHER}}"},
	abi.GuestError:           {"The tool itself reported a failure. The text is its own.", "sandboxd plugin run --app APP TOOL makes the call alone, with --trace its host calls"},
	abi.GuestTimeout:         {"The guest was stopped: its time was over.", "sandboxd plugin bench TOOL says what it takes; sandboxd help limits has the most that limits.wall may be"},
	abi.GuestMemory:          {"The guest was stopped: it wanted more memory than it may have.", "read in pieces; sandboxd help limits has the most that limits.memory may be"},
	abi.GuestFuel:            {"The guest was stopped: it had done as much work as it may.", "sandboxd plugin bench TOOL says what it takes; sandboxd help limits has the most that limits.fuel may be"},
	abi.GuestStack:           {"The guest was stopped: its functions called each other too deeply.", "sandboxd plugin run --app APP TOOL shows the functions"},
	abi.GuestTrap:            {"The guest broke, or ended itself.", "sandboxd plugin run --app APP TOOL shows where"},
	abi.GuestOutputInvalid:   {"What the guest answered is no answer, or does not fit the tool's own schema.", "sandboxd plugin run --app APP TOOL shows what is wrong; sandboxd plugin test keeps it right"},
	abi.GuestOutputTooLarge:  {"The answer is longer than an answer may be.", "answer less, or write an artifact"},
	abi.HostcallLimit:        {"The guest called its host more often than it may.", "make fewer, larger ones; sandboxd help limits has the most that limits.host_calls may be"},
	abi.CapabilityDenied:     {"The guest asked for something that it was not granted.", "write LINE under grants of the plugin in APP/" + app.FileName + ", if it should have it and its manifest asks for it; a guard may have narrowed the grants"},
	abi.EgressDenied:         {"The host refuses that address whatever is granted: it is private, or a redirect led away from what is granted.", "write LINE under requests of its manifest and under grants in APP/" + app.FileName + ", if the host is yours: it has to be asked for and granted; a metadata service is never reached"},
	abi.EgressLimit:          {"The answer from the network was too large or too slow.", "ask for less"},
	abi.QuotaExceeded:        {"The tool wanted to keep more than one call may.", "keep less in one call, or in several"},
	abi.NoRecordedAnswer:     {"Recorded answers stand in for the network, and none fits the request.", "add it to the cassette"},
	abi.NotFound:             {"There is no such thing.", "sandboxd session ls, confirm ls and plugin inspect list what there is"},
	abi.ArgsInvalid:          {"The arguments do not fit the tool's schema, or are no document. The tool was not called.", "sandboxd plugin inspect shows the arguments of TOOL"},
	abi.PolicyDenied:         {"A guard said no. The tool was not called, or what was said was not shown.", "sandboxd policy run --chain APP asks the guards again; the guard's settings are in APP/" + app.FileName + ", and sandboxd policy test keeps the question"},
	abi.PolicyUnavailable:    {"A guard gave no usable verdict, so the answer is no: it was late, broke, or answered wrongly.", "mend the guard GUARD: sandboxd policy test, sandboxd policy bench; no setting skips a guard"},
	abi.ConfirmationPending:  {"The call waits for a person.", "sandboxd confirm show APP QUESTION, then confirm approve or reject"},
	abi.ConfirmationRejected: {"A person said no.", "whoever said no may have said why; to have it done, ask the agent again and approve that"},
	abi.ConfirmationNotFound: {"There is no such question.", "sandboxd confirm ls APP"},
	abi.ConfirmationExpired:  {"The question was not answered in time.", "ask the agent again, or give people longer: confirm: {expires: 24h} in APP/" + app.FileName},
	abi.ConfirmationDecided:  {"The question was answered before: an answer counts once.", "sandboxd audit search APP --action confirmation. says by whom"},
	abi.ConfirmationMismatch: {"The answer is about other arguments than the question.", "sandboxd confirm show APP QUESTION, then answer what it shows"},
	abi.BudgetExhausted:      {"The run has used what it may: steps, calls or time.", "agent.limits in " + app.FileName},
	abi.OutcomeUnknown:       {"The call was interrupted: its run or the process ended, or the host broke in it. It may have had its effect, so it is not made again.", "look at the other side, then decide; what broke in the host is in the log of the process"},
	abi.StorageUnavailable:   {"What was about to happen could not be written down, or what it needs not be had, so it did not. The host failed, and no guest.", "look at the disk, the memory, the store and the log of the process; sandboxd audit verify APP looks at the log"},
	abi.ToolError:            {"A tool of the host failed, or the model named one that there is not.", "sandboxd config print APP shows the tools of each agent; the cause is in the records above"},
	abi.ConfigInvalid:        {"A file says what it cannot mean. The line is named.", "sandboxd config check APP"},
	abi.CapabilityInvalid:    {"A capability is not written as one is.", "sandboxd help grants"},
	abi.Usage:                {"The command line cannot be meant.", "sandboxd help COMMAND"},
	abi.Cancelled:            {"Somebody gave up waiting.", "nothing is left of it: ask again"},
	abi.Unauthenticated:      {"Nobody knows who asks.", "say who asks, as the server is set up to"},
	abi.Forbidden:            {"Somebody may not do what they ask for, such as answer a question of their own.", "let somebody else do it"},
	abi.ModelError:           {"The model, or the way to it, failed.", "look at model in APP/" + app.FileName + " and at its key, then ask again"},
}

func explainCommand(e *env) *cobra.Command {
	var run string
	var asJSON, full bool
	c := &cobra.Command{
		Use: "explain WHAT [FILE]", Short: "Say why something was denied",
		Long: "Say why something was denied. WHAT is the id of a call, as the timeline and session show\nname it, or of a question to a person; \"last\", for what was denied last; or a code, which\n" +
			"is what stands in brackets at the end of an error.\n\nFor a call, FILE is an audit log, or a folder with an app, whose log is read; it is the\ncurrent folder if it is left out. What guards said, which capability was missing and\n" +
			"how the call ended is told in order, then what the code means.",
		Example: "sandboxd explain last examples/weather\nsandboxd explain policy_unavailable",
		Args:    exactly("WHAT", "[FILE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			if m, ok := meanings[abi.Code(args[0])]; ok {
				return e.explainCode(abi.Code(args[0]), m, asJSON)
			}
			name := "."
			if len(args) > 1 {
				name = args[1]
			}
			return e.explainCall(args[0], name, run, asJSON, full)
		},
	}
	c.Flags().StringVar(&run, "run", "", "of several calls with that id, the one of the run `ID`; default the last")
	c.Flags().BoolVar(&full, "full", false, "do not shorten values")
	jsonFlag(c, &asJSON)
	groupFlags(c, "input", "run")
	groupFlags(c, "output", "full")
	return c
}

// An explanation is what explain --json prints.
type explanation struct {
	Format  int            `json:"format"`
	Code    abi.Code       `json:"code,omitempty"`
	Model   string         `json:"model,omitempty"` // what a model reads of the code
	What    string         `json:"what,omitempty"`
	Then    string         `json:"then,omitempty"`
	Records []audit.Record `json:"records,omitempty"` // of the call, in order
}

func (e *env) explainCode(code abi.Code, m meaning, asJSON bool) error {
	x := explanation{Format: 1, Code: code, Model: code.Sentence(), What: m.what, Then: m.then}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(x)
	}
	fmt.Fprint(e.stdout, x.text())
	return nil
}

// text returns what a code means.
func (x *explanation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", x.Code, x.What)
	if x.Model != "" {
		fmt.Fprintf(&b, "  the model reads  %s\n", x.Model)
	}
	if x.Then != "" {
		fmt.Fprintf(&b, "  then             %s\n", x.Then)
	}
	return b.String()
}

// denies reports whether a record says that something was refused. What a monitor
// says refuses nothing.
func denies(r audit.Record) bool {
	if strings.HasPrefix(r.Action, "monitor.") || strings.HasPrefix(r.Action, "guard.member.") {
		return false
	}
	return r.Decision == string(abi.RulingDeny) || r.Action == "call.end" && r.Code != "" && r.Code != string(abi.OK)
}

// explainCall tells what became of one call, or of what was denied last.
func (e *env) explainCall(id, name, run string, asJSON, full bool) error {
	f, err := e.openAudit(name)
	if near := app.Nearest(id, codes()); err != nil && near != "" {
		return misuse("did you mean "+near+"?", "%s: no code, and no log in which to look for a call: %v", id, err)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var all []audit.Record
	var broken error
	of := callKey{} // the call that is explained
	found := false
	for r, err := range audit.Scan(f) {
		if errors.Is(err, audit.ErrChain) {
			broken = brokenLog(name, err)
			break
		}
		if err != nil {
			return &fileError{name, err}
		}
		all = append(all, r)
		if run != "" && r.Run != run {
			continue
		}
		if id != "" && (r.Call == id || r.Target == id && strings.HasPrefix(r.Action, "confirmation.")) || id == "last" && denies(r) {
			of, found = callOf(r), true
		}
	}
	if !found {
		hint := "sandboxd audit search shows the calls of a log"
		if near := app.Nearest(id, codes()); near != "" {
			hint = "did you mean " + near + "?"
		}
		what := fmt.Sprintf("%s: no call of that id, and no code", id)
		if id == "last" {
			what, hint = "last: nothing was denied", ""
		}
		return errors.Join(&commandError{What: what, Code: abi.NotFound, Hint: hint, Exit: exitNotDone}, broken)
	}
	x := explanation{Format: 1}
	about := map[string]string{"APP": name}
	for _, r := range all {
		if callOf(r) != of {
			continue
		}
		x.Records = append(x.Records, r)
		switch {
		case strings.HasPrefix(r.Action, "call."):
			about["TOOL"] = r.Target
		case r.Action == "guard.deny" && about["GUARD"] == "":
			about["GUARD"] = r.Target
		case r.Action == "capability.denied" && r.Capability != "":
			about["LINE"] = "'" + r.Capability + "'"
		case strings.HasPrefix(r.Action, "confirmation."):
			about["QUESTION"] = r.Target
		}
		if m, ok := meanings[abi.Code(r.Code)]; ok && r.Code != string(abi.OK) {
			if x.Code != abi.Code(r.Code) { // else a guard's denial has said more
				x.Code, x.What, x.Then = abi.Code(r.Code), m.what, m.then
			}
		} else if r.Action == "guard.deny" {
			x.Code, x.What, x.Then = abi.PolicyDenied, meanings[abi.PolicyDenied].what, meanings[abi.PolicyDenied].then
		}
	}
	x.Then = standsFor.ReplaceAllStringFunc(x.Then, func(word string) string {
		if text := about[word]; text != "" {
			return foreign(text, true)
		}
		return word
	})
	x.Model = x.Code.Sentence()
	if asJSON {
		return errors.Join(json.NewEncoder(e.stdout).Encode(x), broken)
	}
	e.printCall(x, full)
	return broken
}

// standsFor are words of a meaning that stand for what a call is about.
var standsFor = regexp.MustCompile(`\b(APP|TOOL|GUARD|LINE|QUESTION)\b`)

// printCall tells a call's records, one a line, and what the last code means.
func (e *env) printCall(x explanation, full bool) {
	first := x.Records[0]
	if first.Call != "" {
		fmt.Fprintf(e.stdout, "call %s ", foreign(first.Call, true))
	}
	fmt.Fprintf(e.stdout, "of session %s, run %s, %s\n", foreign(first.Session, true), foreign(first.Run, true), first.Time.Format(time.RFC3339))
	p := e.palette(e.stdout)
	for _, r := range x.Records {
		decision := r.Decision
		switch decision {
		case string(abi.RulingDeny):
			decision = p.red("DENY")
		case string(abi.RulingConfirm):
			decision = p.yellow("ASK")
		}
		parts := []string{fmt.Sprintf("  %-18s", foreign(r.Action, full))}
		for _, text := range []string{r.Target, decision, r.Code, r.Capability, r.Why} {
			if text = strings.TrimSuffix(strings.TrimSpace(text), ";"); text != "" && text != decision {
				text = foreign(text, full)
			}
			if text != "" {
				parts = append(parts, text)
			}
		}
		fmt.Fprintln(e.stdout, strings.Join(parts, "  "))
	}
	if x.Code != "" {
		fmt.Fprint(e.stdout, x.text())
	}
}

// codes returns the names of all codes, in order.
func codes() []string {
	var list []string
	for _, c := range slices.Sorted(maps.Keys(meanings)) {
		list = append(list, string(c))
	}
	return list
}
