// Command csvstats is a plugin with tools that compute over CSV files. They read
// an artifact as a stream and never hold it in memory.
package main

import (
	"encoding/csv"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "csvstats", Version: "1.0.0", Requests: []string{"artifact read *.csv"},
		Exports: []guest.Export{
			guest.Tool[Ask, Stats]{
				Name: "column_stats", Description: "Count, mean, spread and range of one numeric CSV column.",
				Effects: guest.None, Handle: columnStats,
			},
			guest.Tool[GroupAsk, Groups]{
				Name: "group_by", Description: "The same for each value of another column, and where the highest is.",
				Effects: guest.None, Handle: groupBy,
			},
		},
	})
}

func main() {}

// Ask names a column of a file.
type Ask struct {
	File   string `json:"file" doc:"name of the artifact" min:"1" max:"200"`
	Column string `json:"column" doc:"header of a column with numbers" min:"1" max:"100"`
}

// Stats are the figures of one column.
type Stats struct {
	Rows    int     `json:"rows"`    // with a number
	Skipped int     `json:"skipped"` // without one, or broken
	Mean    float64 `json:"mean"`
	StdDev  float64 `json:"std_dev"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
}

// GroupAsk names a column, a column to group by, and one that says when.
type GroupAsk struct {
	File   string `json:"file" doc:"name of the artifact" min:"1" max:"200"`
	By     string `json:"by" doc:"header of the column to group by" min:"1" max:"100"`
	Column string `json:"column" doc:"header of a column with numbers" min:"1" max:"100"`
	At     string `json:"at" doc:"header of the column that says when" min:"1" max:"100"`
}

// Groups are the figures of each group, in the order in which they were met.
type Groups struct {
	Count   int     `json:"count"`
	Groups  []Group `json:"groups"`
	Highest Highest `json:"highest"`
}

// Group is one group.
type Group struct {
	Key string `json:"key"`
	Stats
}

// Highest is the highest value of all.
type Highest struct {
	Key   string  `json:"key"`
	Value float64 `json:"value"`
	At    string  `json:"at"`
	Date  string  `json:"date"` // the first ten characters of At
}

func columnStats(c *guest.Call, in Ask) (Stats, error) {
	s := newSums()
	err := eachRow(c, in.File, []string{in.Column}, func(row []string, broken bool) {
		s.add(row, broken, 0)
	})
	if err != nil {
		return Stats{}, err
	}
	if s.Rows == 0 {
		return Stats{}, guest.Fail("no_numbers", "column %q holds no numbers", in.Column)
	}
	return s.stats(), nil
}

func groupBy(c *guest.Call, in GroupAsk) (Groups, error) {
	var order []string
	groups := map[string]*sums{}
	high := Highest{Value: math.Inf(-1)}
	err := eachRow(c, in.File, []string{in.Column, in.By, in.At}, func(row []string, broken bool) {
		if broken || row == nil {
			return
		}
		key := strings.Clone(row[1])
		if groups[key] == nil {
			groups[key] = newSums()
			order = append(order, key)
		}
		if v, ok := groups[key].add(row, false, 0); ok && v > high.Value {
			at := strings.Clone(row[2])
			high = Highest{Key: key, Value: v, At: at, Date: at[:min(10, len(at))]}
		}
	})
	if err != nil {
		return Groups{}, err
	}
	if len(order) == 0 {
		return Groups{}, guest.Fail("no_rows", "%s has no rows", in.File)
	}
	out := Groups{Count: len(order), Highest: high}
	for _, k := range order {
		out.Groups = append(out.Groups, Group{Key: k, Stats: groups[k].stats()})
	}
	return out, nil
}

// eachRow calls f with the named fields of each row. A row that cannot be read,
// or has another number of fields than the header, is broken.
func eachRow(c *guest.Call, file string, columns []string, f func(row []string, broken bool)) error {
	r, err := c.Artifact(file)
	if err != nil {
		return err
	}
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	head, err := rows.Read()
	if err != nil {
		return guest.Fail("bad_csv", "%s has no header row", file)
	}
	head = slices.Clone(head)
	at := make([]int, len(columns))
	for i, name := range columns {
		if at[i] = slices.Index(head, name); at[i] < 0 {
			return guest.Fail("no_such_column", "no column %q; there are: %s", name, strings.Join(head, ", "))
		}
	}
	picked := make([]string, len(columns))
	for {
		rec, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if _, broken := errors.AsType[*csv.ParseError](err); broken {
			f(nil, true)
			continue
		}
		if err != nil {
			return err
		}
		for i, n := range at {
			picked[i] = rec[n]
		}
		f(picked, false)
	}
}

// sums adds up a column in one pass.
type sums struct {
	Stats
	m2 float64
}

func newSums() *sums { return &sums{Stats: Stats{Min: math.Inf(1), Max: math.Inf(-1)}} }

// add counts one row and reports its value, if it has one.
func (s *sums) add(row []string, broken bool, at int) (float64, bool) {
	var v float64
	err := error(nil)
	if !broken {
		v, err = strconv.ParseFloat(strings.TrimSpace(row[at]), 64)
	}
	if broken || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		s.Skipped++
		return 0, false
	}
	s.Rows++
	d := v - s.Mean
	s.Mean += d / float64(s.Rows)
	s.m2 += d * (v - s.Mean)
	s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	return v, true
}

func (s *sums) stats() Stats {
	if s.Rows == 0 {
		return Stats{Skipped: s.Skipped} // without rows there is no range
	}
	s.StdDev = math.Sqrt(s.m2 / float64(s.Rows))
	return s.Stats
}
