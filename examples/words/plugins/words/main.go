//go:build wasip1

// Plugin words is a plain Extism plugin, written with Extism's own PDK for Go. It
// knows nothing of this host: plugin.yaml beside it says which export is which tool.
package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	pdk "github.com/extism/go-pdk"
)

type text struct {
	Text string `json:"text"`
}

type counted struct {
	Words   int    `json:"words"`
	Longest string `json:"longest"`
}

// count counts the words that have as many letters as the configuration says.
//
//go:wasmexport count
func count() int32 {
	var in text
	if err := pdk.InputJSON(&in); err != nil {
		return fail(err)
	}
	least := 1
	if s, ok := pdk.GetConfig("min_letters"); ok {
		var err error
		if least, err = strconv.Atoi(s); err != nil {
			return fail(fmt.Errorf("min_letters %q is no number", s))
		}
	}
	var out counted
	for word := range strings.FieldsSeq(in.Text) {
		if utf8.RuneCountInString(word) < least {
			continue
		}
		out.Words++
		if utf8.RuneCountInString(word) > utf8.RuneCountInString(out.Longest) {
			out.Longest = word
		}
	}
	if out.Words == 0 {
		return fail(errors.New("there is no word in this text"))
	}
	if err := pdk.OutputJSON(out); err != nil {
		return fail(err)
	}
	return 0
}

// shout answers with plain text.
//
//go:wasmexport shout
func shout() int32 {
	var in text
	if err := pdk.InputJSON(&in); err != nil {
		return fail(err)
	}
	pdk.SetVar("loud", []byte(strings.ToUpper(in.Text)))
	pdk.OutputString(string(pdk.GetVar("loud")) + "!")
	return 0
}

// fetch reads a page. Where the host refuses the request, the status is 0.
//
//go:wasmexport fetch
func fetch() int32 {
	var in struct {
		URL string `json:"url"`
	}
	if err := pdk.InputJSON(&in); err != nil {
		return fail(err)
	}
	answer := pdk.NewHTTPRequest(pdk.MethodGet, in.URL).Send()
	if answer.Status() == 0 {
		return fail(errors.New("this page cannot be read"))
	}
	if err := pdk.OutputJSON(map[string]any{"status": answer.Status(), "text": string(answer.Body())}); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int32 {
	pdk.SetError(err)
	return 1
}

func main() {}
