package main_test

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// No row that the guards were specified with is lost, and each wants at least what it wanted:
// the verdict, the code and what follows from them. TestTables runs them.
func TestSpecified(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "specified.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var specified map[string][][]any
	if err := yaml.Unmarshal(data, &specified); err != nil {
		t.Fatal(err)
	}
	count := 0
	for guard, rows := range specified {
		have := wants(t, guard)
		for _, row := range rows {
			count++
			name, verdict := row[0].(string), row[1].(string)
			got, ok := have[name]
			if !ok {
				t.Errorf("%s: its table has no row %q, which is to want %s", guard, name, verdict)
				continue
			}
			if got.verdict != verdict && !strings.HasPrefix(got.verdict, verdict+" ") { // a code where none was asked for is more
				t.Errorf("%s: row %q wants %q, and is to want %q", guard, name, got.verdict, verdict)
			}
			if len(row) < 3 {
				continue
			}
			for key, want := range row[2].(map[string]any) {
				if !reflect.DeepEqual(got.more[key], want) {
					t.Errorf("%s: row %q wants %s %v, and is to want %v", guard, name, key, got.more[key], want)
				}
			}
		}
	}
	if len(specified) != len(costs(t)) || count != 100 {
		t.Errorf("%d rows of %d guards, there are 100 of %d", count, len(specified), len(costs(t)))
	}
}

// A wanted is what a row of a table wants of its last question.
type wanted struct {
	verdict string         // with the code, if it says one; empty for a count of verdicts
	more    map[string]any // the rest, or how many of which verdict
}

// wants reads what the rows of a guard's table want, by name; rows about settings that are
// refused are not there.
func wants(t *testing.T, guard string) map[string]wanted {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("tests", guard+".table.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Rows []yaml.Node }
	if err := yaml.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	all := map[string]wanted{}
	for _, n := range table.Rows {
		name, want := "", any(nil)
		if n.Kind == yaml.SequenceNode {
			var row []any
			if err := n.Decode(&row); err != nil {
				t.Fatal(err)
			}
			name, want = row[0].(string), row[2]
		} else {
			var row struct {
				Name  string
				Want  any
				Steps [][]any
			}
			if err := n.Decode(&row); err != nil {
				t.Fatal(err)
			}
			name, want = row.Name, row.Want
			if len(row.Steps) > 0 {
				want = row.Steps[len(row.Steps)-1][2]
			}
		}
		switch want := want.(type) {
		case string:
			all[name] = wanted{verdict: want}
		case map[string]any:
			verdict, _ := want["verdict"].(string)
			code, _ := want["code"].(string)
			all[name] = wanted{strings.TrimSpace(verdict + " " + code), want}
		}
	}
	return all
}

// resists reports whether a row wants that something does not pass as it came: it is refused,
// a person is asked, or it is changed.
func (w wanted) resists() bool {
	verdict, _, _ := strings.Cut(w.verdict, " ")
	refused, _ := w.more["deny"].(int)
	switch cmp.Or(verdict, "count") {
	case "deny", "confirm", "rewrite":
		return true
	case "count":
		return refused > 0
	}
	return false
}
