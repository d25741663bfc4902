// Keeper is a plugin of the scripts: it uses a secret, keeps counters between
// calls and remembers earlier sessions.
package main

import (
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "keeper", Version: "1.0.0", Description: "What can be used and kept.",
		Requests: []string{"http POST pay.bank.example/v1/*", "secret use BANK_TOKEN at pay.bank.example", "kv read,write", "memory search"},
		Exports: []guest.Export{
			guest.Tool[struct{}, map[string]any]{Name: "charge", Description: "Charge.", Handle: charge},
			guest.Tool[struct{}, map[string]any]{Name: "count", Description: "Count calls.", Handle: count},
			guest.Tool[Query, []guest.MemoryEntry]{Name: "recall", Description: "Recall.", Effects: guest.None, Handle: recall},
		},
	})
}

func main() {}

// A Query is what to look for.
type Query struct {
	Query string `json:"query"`
}

func charge(c *guest.Call, _ struct{}) (map[string]any, error) {
	res, err := c.HTTP(guest.Request{Method: "POST", URL: "https://pay.bank.example/v1/payments", JSON: map[string]int{"n": 1},
		Secrets: []guest.UseSecret{{Secret: "BANK_TOKEN", Header: "Authorization", Prefix: "Bearer "}}})
	if err != nil {
		return nil, err
	}
	return map[string]any{"status": res.Status, "body": string(res.Body), "echo": res.Header["x-echo"]}, nil
}

// count counts calls, three at most, and keeps when the last one was.
func count(c *guest.Call, _ struct{}) (map[string]any, error) {
	kv := c.KV()
	n, counted, err := kv.Add("calls", 1, 3, time.Hour)
	if err != nil {
		return nil, err
	}
	var last string
	found, err := kv.Get("last", &last)
	if err == nil {
		err = kv.Set("last", c.ID(), time.Hour)
	}
	return map[string]any{"n": n, "counted": counted, "before": found}, err
}

func recall(c *guest.Call, in Query) ([]guest.MemoryEntry, error) {
	found, err := c.SearchMemory(in.Query)
	for i := range found {
		found[i].Time = ""
	}
	return found, err
}
