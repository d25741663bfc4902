package main

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/sandboxd/sandboxd/internal/authortest"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"` // seconds
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (r *testRun) junit(kind string, res authortest.Result) {
	if n := len(r.suites); n == 0 || r.suites[n-1].Name != res.File {
		r.suites = append(r.suites, junitSuite{Name: res.File})
	}
	s := &r.suites[len(r.suites)-1]
	c := junitCase{Class: kind, Name: foreign(res.Name, true), Time: fmt.Sprintf("%.6f", float64(res.WallUS)/1e6)}
	s.Tests++
	if !res.OK {
		s.Failures++
		var text strings.Builder
		fmt.Fprintf(&text, "%s:%d\n", res.File, res.Line)
		for _, p := range res.Problems {
			fmt.Fprintf(&text, "%s: want %s, got %s\n", p.What, foreign(p.Want, true), foreign(p.Got, true))
		}
		c.Failure = &junitFailure{Message: foreign(res.Problems[0].What+": "+res.Problems[0].Got, false), Text: text.String()}
	}
	s.Cases = append(s.Cases, c)
}

func (r *testRun) writeJUnit() error {
	data, err := xml.MarshalIndent(struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []junitSuite
	}{Suites: r.suites}, "", "  ")
	if err != nil {
		return err
	}
	return r.writeFile(r.flags.junit, append([]byte(xml.Header), append(data, '\n')...))
}
