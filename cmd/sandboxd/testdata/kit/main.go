// Kit is the plugin that the scripts call: one tool for each thing that a call
// can do or end in.
package main

import (
	"io"
	"strings"
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "kit", Version: "1.0.0", Description: "What a call can do.",
		Requests: []string{"state read,write user:*", "state write session:seen", "artifact read *.csv", "log", "clock"},
		Limits:   guest.Limits{MemoryBytes: 32 << 20},
		Exports: []guest.Export{
			guest.Tool[Unit, any]{Name: "set_unit", Description: "Remember a unit.", Effects: guest.Idempotent, Handle: setUnit},
			guest.Tool[File, map[string]int]{Name: "file_size", Description: "Count the bytes of a file.", Effects: guest.None, Handle: fileSize},
			guest.Tool[struct{}, map[string]string]{Name: "now", Description: "Tell the time.", Effects: guest.None, Handle: now},
			guest.Tool[struct{}, any]{Name: "varies", Description: "Work as much as time and chance say.", Effects: guest.None, Handle: varies},
			guest.Tool[struct{}, any]{Name: "chance", Description: "Work as much as chance says.", Effects: guest.None, Handle: chance},
			guest.Tool[struct{}, any]{Name: "timed", Description: "Work as much as time says.", Effects: guest.None, Handle: timed},
			guest.Tool[struct{}, any]{Name: "measures", Description: "Work as much as the time that it took says.", Effects: guest.None, Handle: measures},
			guest.Tool[Text, map[string]string]{Name: "echo", Description: "Say it again.", Effects: guest.None, Handle: echo},
			guest.Tool[struct{}, any]{Name: "pay", Description: "Pay.", Confirm: true, Handle: nothing},
			guest.Tool[struct{}, any]{Name: "panics", Description: "Break.", Handle: panics},
			guest.Tool[struct{}, any]{Name: "spins", Description: "Run for ever.", Handle: spins},
			guest.Tool[struct{}, any]{Name: "grows", Description: "Take all memory.", Handle: grows},
			guest.Tool[Unit, any]{Name: "refuses", Description: "Report a failure.", Handle: refuses},
		},
	})
}

func main() {}

// A Unit is a unit of temperature.
type Unit struct {
	Unit string `json:"unit" enum:"C,F"`
}

// A File names an artifact.
type File struct {
	File string `json:"file" doc:"name of the file" max:"200"`
}

// A Text is any text.
type Text struct {
	Text  string `json:"text"`
	Times int    `json:"times,omitempty" min:"1" max:"100000" default:"1"`
}

func setUnit(c *guest.Call, in Unit) (any, error) {
	var before string
	if _, err := c.Get("user:unit", &before); err != nil {
		return nil, err
	}
	c.Log(guest.LevelInfo, "unit is %s", in.Unit)
	if err := c.Set("user:unit", in.Unit); err != nil {
		return nil, err
	}
	return map[string]string{"before": before, "now": in.Unit}, nil
}

func fileSize(c *guest.Call, in File) (map[string]int, error) {
	f, err := c.Artifact(in.File)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return map[string]int{"bytes": len(data)}, err
}

func now(*guest.Call, struct{}) (map[string]string, error) {
	return map[string]string{"now": time.Now().UTC().Format(time.RFC3339)}, nil
}

func echo(_ *guest.Call, in Text) (map[string]string, error) {
	return map[string]string{"text": strings.Repeat(in.Text, in.Times)}, nil
}

// work takes the more fuel the larger n is.
func work(n int64) (any, error) { return strings.Repeat("x", int(n%64)+1), nil }

func timed(*guest.Call, struct{}) (any, error) { return work(time.Now().UnixMilli()) }

func measures(*guest.Call, struct{}) (any, error) {
	return work(time.Since(began).Microseconds())
}

var began = time.Now()

func chance(c *guest.Call, _ struct{}) (any, error) {
	b := make([]byte, 1)
	c.Random(b)
	return work(int64(b[0]))
}

func varies(c *guest.Call, in struct{}) (any, error) {
	if _, err := chance(c, in); err != nil {
		return nil, err
	}
	return timed(c, in)
}

func nothing(*guest.Call, struct{}) (any, error) { return "paid", nil }

func panics(*guest.Call, struct{}) (any, error) { panic("out of order") }

func spins(*guest.Call, struct{}) (any, error) {
	for i := 0; ; i++ {
		if i < 0 {
			i = 0
		}
	}
}

func grows(*guest.Call, struct{}) (any, error) {
	var all [][]byte
	for {
		all = append(all, make([]byte, 1<<20))
		if len(all) < 0 {
			return all, nil
		}
	}
}

func refuses(_ *guest.Call, in Unit) (any, error) {
	return nil, guest.Fail("no_such_unit", "no unit\u202e %s\x1b[31m here", in.Unit)
}
