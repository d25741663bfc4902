package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/internal/app"
)

// An auditReport is what audit verify finds.
type auditReport struct {
	Format  int        `json:"format"`
	OK      bool       `json:"ok"`
	Records int        `json:"records"` // that are good
	First   *time.Time `json:"first,omitempty"`
	Last    *time.Time `json:"last,omitempty"`
	Head    string     `json:"head"` // digest of the last good line
	Line    int        `json:"line,omitempty"`
	What    string     `json:"what,omitempty"` // is wrong with Line
}

func auditVerifyCommand(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "verify [FILE]", Short: "Check that an audit log is as it was written",
		Long: "Check every line of an audit log and that each follows from the one before.\n\n" +
			"FILE is a log, or a folder with an app, whose log is checked; it is the current\nfolder if it is left out. " +
			"The chain cannot show that lines were cut off the end:\ncompare the head with one that was kept elsewhere.",
		Example: "sandboxd audit verify examples/weather\nsandboxd audit verify data/audit.log --json",
		Args:    exactly("[FILE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "."
			if len(args) > 0 {
				name = args[0]
			}
			return e.verifyAudit(name, asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func (e *env) verifyAudit(name string, asJSON bool) error {
	f, err := e.openAudit(name)
	if err != nil {
		return err
	}
	defer f.Close()
	summary, err := audit.Verify(f)
	broken, isBroken := errors.AsType[*audit.ChainError](err)
	if err != nil && !isBroken {
		return &fileError{name, err}
	}
	r := auditReport{Format: 1, OK: err == nil, Records: summary.Records, Head: "sha256:" + summary.Head}
	if summary.Records > 0 {
		r.First, r.Last = &summary.First, &summary.Last
	}
	if isBroken {
		r.Line, r.What = broken.Line, broken.What
	}
	if asJSON {
		if err := json.NewEncoder(e.stdout).Encode(r); err != nil {
			return err
		}
	} else {
		line := plural(r.Records, "record")
		if r.First != nil {
			line += fmt.Sprintf(", first %s, last %s", r.First.Format(time.RFC3339), r.Last.Format(time.RFC3339))
		}
		line += ", head " + shortDigest(r.Head)
		if r.OK {
			line = "the chain holds: " + line
		}
		fmt.Fprintln(e.stdout, line)
	}
	if isBroken {
		return brokenLog(name, broken)
	}
	return nil
}

// auditPath returns where the log is that the user named, or that of the app in a
// folder.
func (e *env) auditPath(name string) (string, error) {
	path := e.path(name)
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return path, nil
	}
	file, err := app.Load(path)
	if err != nil {
		return "", err
	}
	path = file.AuditPath()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", misuse("every run is recorded there: sandboxd run "+name+" MESSAGE", "%s: the app has no audit log yet: nothing is recorded", name)
	}
	return path, nil
}

// brokenLog is the error of a log whose chain is broken.
func brokenLog(name string, err error) error {
	broken, ok := errors.AsType[*audit.ChainError](err)
	if !ok {
		return err
	}
	return &commandError{What: fmt.Sprintf("%s: line %d: %s", name, broken.Line, broken.What), Exit: exitNotDone,
		Hint: "what comes before is whole; nothing from this line on can be relied on; to go on with a new log, move this one aside and keep it"}
}
