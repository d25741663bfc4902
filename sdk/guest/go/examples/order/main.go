// Order is a plugin with a tool that prices an order, and a hook that completes and
// refuses orders. The examples of the other languages do the same, and one table of
// tests holds all of them to it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "order", Version: "1.0.0", Description: "Prices an order.",
		Requests: []string{"http GET rates.example/v1/*", "state read user:currency", "log"},
		Exports: []guest.Export{
			guest.Tool[Order, Priced]{
				Name: "price_order", Description: "The highest price and the longest name of an order's lines.",
				Effects: guest.None, Handle: price,
			},
			guest.Hooks{BeforeTool: complete},
		},
	})
}

func main() {}

// An Order is what the model asks about.
type Order struct {
	Lines    []Line  `json:"lines"`
	Currency *string `json:"currency,omitempty"`
	Rate     bool    `json:"rate,omitempty"`
}

// A Line is one line of an order. Its price is a number, or text that reads like one.
type Line struct {
	Name  string         `json:"name"`
	Price guest.Document `json:"price,omitzero"`
}

// Priced is what the model reads. Numbers have the text that they were written with.
type Priced struct {
	Count    int             `json:"count"`
	Currency string          `json:"currency"`
	Highest  json.RawMessage `json:"highest"`
	Longest  string          `json:"longest"`
	Rate     json.RawMessage `json:"rate,omitempty"`
}

func price(c *guest.Call, in Order) (Priced, error) {
	currency, err := currencyOf(c, in)
	if err != nil {
		return Priced{}, err
	}
	out := Priced{Count: len(in.Lines), Currency: currency}
	var highest guest.Decimal
	for i, line := range in.Lines {
		price, err := line.Price.Decimal("")
		if err != nil {
			return Priced{}, guest.Fail("bad_price", "line %d has no price", i+1)
		}
		if i == 0 || price.Cmp(highest) > 0 {
			highest = price
		}
		if utf8.RuneCountInString(line.Name) > utf8.RuneCountInString(out.Longest) {
			out.Longest = line.Name
		}
	}
	if out.Count == 0 {
		return Priced{}, guest.Fail("no_lines", "an order has at least one line")
	}
	out.Highest = json.RawMessage(highest.String())
	if in.Rate {
		if out.Rate, err = rateOf(c, currency); err != nil {
			return Priced{}, err
		}
	}
	c.Log(guest.LevelInfo, "%d lines", out.Count)
	return out, nil
}

// currencyOf returns what the order says, else what the user prefers, else EUR.
func currencyOf(c *guest.Call, in Order) (string, error) {
	if in.Currency != nil {
		return *in.Currency, nil
	}
	currency := "EUR"
	_, err := c.Get("user:currency", &currency)
	return currency, err
}

func rateOf(c *guest.Call, currency string) (json.RawMessage, error) {
	res, err := c.HTTP(guest.Request{URL: "https://rates.example/v1/" + url.PathEscape(currency)})
	if err != nil {
		return nil, err
	}
	if res.Status == 404 {
		return nil, guest.Fail("unknown_currency", "there is no rate for %q", currency)
	}
	body, err := abi.Unmarshal(res.Body) // strict, and keeps the text of numbers
	answer, _ := body.(map[string]any)
	rate, ok := answer["rate"].(json.Number)
	if err != nil || res.Status != 200 || !ok {
		return nil, fmt.Errorf("the rate service answered %d", res.Status)
	}
	return json.RawMessage(rate), nil
}

func complete(c *guest.Call, t *guest.ToolCall) (any, error) {
	if t.Name != "price_order" {
		return nil, nil
	}
	currency, err := t.Args.Text("currency")
	switch {
	case currency == "???":
		return nil, errors.New(`the currency "???" is not known`)
	case currency == "none":
		return map[string]int{"count": 0}, nil
	case err != nil && c.Config("currency") != "":
		t.Args.Set("currency", c.Config("currency"))
	}
	return nil, nil
}
