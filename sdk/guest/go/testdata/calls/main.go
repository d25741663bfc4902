// Calls is what tests call to see every helper of the SDK at work.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"time"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "calls", Version: "1.0.0", Description: "What tests call to see every helper of an SDK at work.",
		Requests: []string{"state read,write session:*", "state read,write user:*", "artifact read,write *", "kv read,write", "memory search", "emit", "confirm",
			"transfer", "escalate", "skip-summary", "http POST pay.bank.example/v1/*", "secret use BANK_TOKEN at pay.bank.example"},
		Exports: []guest.Export{
			guest.Tool[guest.Document, any]{Name: "calls", Handle: calls},
			guest.Stream[struct{}, any]{Name: "lines", Handle: lines},
		},
	})
}

func main() {}

func calls(c *guest.Call, in guest.Document) (any, error) {
	errs := []string{}
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err.Error())
		}
		return err == nil
	}
	what, _ := in.Text("do")
	switch what {
	case "keep":
		return keep(c, note, &errs), nil
	case "time":
		bytes := make([]byte, 16)
		c.Random(bytes)
		t := time.Now().UTC()
		return []any{t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Weekday(), strconv.FormatInt(t.UnixNano(), 10), string(bytes) != string(make([]byte, 16))}, nil
	case "whole":
		return whole(in)
	case "edit":
		return edit(in)
	case "send":
		return send(c)
	case "ask":
		note(c.AskConfirmation("Sure?", json.RawMessage(`{"n":1.50}`)))
	case "transfer":
		note(c.Transfer("billing"))
	case "escalate":
		note(c.Escalate())
	case "skip":
		note(c.SkipSummary())
	}
	return errs, nil
}

func keep(c *guest.Call, note func(error) bool, errs *[]string) map[string]any {
	out := map[string]any{}
	var v json.RawMessage
	found, err := c.Get("session:n", &v)
	if note(err) && found {
		out["state"] = v
	}
	found, err = c.Get("user:none", &v)
	note(err)
	out["found"] = found
	note(c.Set("session:m", map[string]string{"x": "ä"}))
	names, err := c.Artifacts()
	if note(err) {
		out["names"] = names
	}
	text, err := c.Artifact("a.txt")
	if note(err) {
		if data, err := io.ReadAll(text); note(err) {
			out["text"] = string(data[2:])
		}
	}
	version, err := c.SaveArtifact("b.txt", "text/plain", []byte("größer"))
	if note(err) {
		out["version"] = version
	}
	kv := c.KV()
	found, err = kv.Get("k", &v)
	if note(err) && found {
		out["kv"] = v
	}
	note(kv.Set("k2", []json.RawMessage{[]byte("1.50")}, time.Second))
	note(kv.Delete("k"))
	found, err = kv.Get("k", &v)
	note(err)
	out["gone"] = !found
	count, added, err := kv.Add("c", 2, 3, 0)
	note(err)
	out["count"], out["added"] = count, added
	_, added, err = kv.Add("c", 2, 3, time.Minute)
	note(err)
	out["again"] = added
	memory, err := c.SearchMemory("INV-7")
	if note(err) {
		out["memory"] = memory
	}
	out["errors"] = *errs
	return out
}

func whole(in guest.Document) (any, error) {
	var numbers []any
	if _, err := in.Get("numbers", &numbers); err != nil {
		return nil, err
	}
	out := []any{}
	for _, n := range numbers {
		number, ok := n.(json.Number)
		r, rational := new(big.Rat).SetString(string(number))
		if !ok || !rational || !r.IsInt() || !r.Num().IsInt64() {
			out = append(out, nil)
			continue
		}
		out = append(out, r.Num().Int64())
	}
	return out, nil
}

func edit(in guest.Document) (any, error) {
	out := map[string]guest.Document{}
	at, err := in.Text("at")
	for _, name := range []string{"set", "deleted"} {
		var doc, value guest.Document
		if _, err := in.Get("doc", &doc); err != nil {
			return nil, err
		}
		if _, err := in.Get("value", &value); err != nil {
			return nil, err
		}
		if name == "set" {
			doc.Set(at, value)
		} else {
			doc.Delete(at)
		}
		if _, err := doc.MarshalJSON(); err == nil { // else there is no such place
			out[name] = doc
		}
	}
	return out, err
}

func send(c *guest.Call) (any, error) {
	r, err := c.HTTP(guest.Request{Method: "POST", URL: "https://pay.bank.example/v1/payments", Header: map[string]string{"Idempotency-Key": "call-3"},
		Secrets: []guest.UseSecret{{Secret: "BANK_TOKEN", Header: "Authorization", Prefix: "Bearer "}}, Body: []byte(`{"n":1}`)})
	if err != nil {
		return nil, err
	}
	return map[string]any{"status": r.Status, "type": r.Header["content-type"], "body": fmt.Sprintf("%s", r.Body)}, nil
}

func lines(_ *guest.Call, _ struct{}, emit func(any) error) error {
	if err := emit("ä\n"); err != nil {
		return err
	}
	return emit(json.RawMessage(`{"n":1.50}`))
}
