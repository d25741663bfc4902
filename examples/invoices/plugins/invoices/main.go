// Command invoices is a plugin with two tools that read invoices and one that pays
// them, at a bank whose key it uses and never sees.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "invoices", Version: "1.0.0", Description: "Reads and pays invoices.",
		Requests: []string{
			"artifact read invoices/*.json",
			"http POST pay.bank.example/v1/payments",
			"secret use BANK_TOKEN at pay.bank.example",
			"state write session:last_payment",
		},
		Exports: []guest.Export{
			guest.Tool[struct{}, Summary]{
				Name: "list_invoices", Description: "Says how many invoices there are, what they come to, and which is due next.",
				Effects: guest.None, Handle: list,
			},
			guest.Tool[Query, Invoice]{
				Name: "read_invoice", Description: "Says what an invoice asks for.",
				Effects: guest.None, Handle: read,
			},
			guest.Tool[Payment, Paid]{
				Name: "pay_invoice", Description: "Pays one invoice.",
				Effects: guest.Once, Handle: pay,
			},
		},
	})
}

func main() {}

// Query names an invoice.
type Query struct {
	Invoice string `json:"invoice" doc:"such as INV-7" pattern:"^INV-[0-9]{1,6}$"`
}

// Invoice is what is owed.
type Invoice struct {
	Invoice  string `json:"invoice"`
	Vendor   string `json:"vendor"`
	For      string `json:"for"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
	Due      string `json:"due"`
}

func read(c *guest.Call, in Query) (Invoice, error) {
	i, err := open(c, "invoices/"+in.Invoice+".json")
	if errors.Is(err, fs.ErrNotExist) {
		return Invoice{}, guest.Fail("unknown_invoice", "there is no invoice %s", in.Invoice)
	}
	return i, err
}

func open(c *guest.Call, name string) (Invoice, error) {
	f, err := c.Artifact(name)
	if err != nil {
		return Invoice{}, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return Invoice{}, err
	}
	var i Invoice
	if err := json.Unmarshal(data, &i); err != nil {
		return Invoice{}, fmt.Errorf("%s: %w", name, err)
	}
	return i, nil
}

// Summary is what all invoices come to.
type Summary struct {
	Count  int               `json:"count"`
	Totals map[string]string `json:"totals" doc:"by currency"`
	Next   Invoice           `json:"next" doc:"the one that is due first"`
}

func list(c *guest.Call, _ struct{}) (Summary, error) {
	names, err := c.Artifacts()
	if err != nil {
		return Summary{}, err
	}
	s, cents := Summary{Totals: map[string]string{}}, map[string]int64{}
	for _, name := range names {
		i, err := open(c, name)
		if err != nil {
			return Summary{}, err
		}
		n, err := inCents(i.Amount)
		if err != nil {
			return Summary{}, fmt.Errorf("%s: %w", name, err)
		}
		cents[i.Currency] += n
		if s.Count++; s.Count == 1 || i.Due < s.Next.Due {
			s.Next = i
		}
	}
	for currency, n := range cents {
		s.Totals[currency] = fmt.Sprintf("%d.%02d", n/100, n%100)
	}
	return s, nil
}

// inCents reads an amount with two digits after the point. Sums of money are sums
// of whole cents.
func inCents(amount string) (int64, error) {
	whole, cents, ok := strings.Cut(amount, ".")
	if !ok || len(cents) != 2 {
		return 0, fmt.Errorf("amount %q: want two digits after the point", amount)
	}
	return strconv.ParseInt(whole+cents, 10, 64)
}

// Payment is what to pay. Whether the amount is one to be paid is for guards to
// say, which see it as it is here.
type Payment struct {
	Invoice  string `json:"invoice" doc:"such as INV-7" pattern:"^INV-[0-9]{1,6}$"`
	Amount   string `json:"amount" doc:"decimal text, such as 12.50" max:"20"`
	Currency string `json:"currency" doc:"such as EUR" pattern:"^[A-Z]{3}$"`
}

// Paid is the bank's answer.
type Paid struct {
	ID       string            `json:"id"`
	Amount   string            `json:"amount"`
	Currency string            `json:"currency"`
	YouSent  map[string]string `json:"you_sent,omitempty" doc:"headers that the bank repeats"`
}

func pay(c *guest.Call, in Payment) (Paid, error) {
	res, err := c.HTTP(guest.Request{
		Method: "POST", URL: "https://pay.bank.example/v1/payments", JSON: in,
		Header:  map[string]string{"Idempotency-Key": c.ID()}, // the same when this call is made again
		Secrets: []guest.UseSecret{{Secret: "BANK_TOKEN", Header: "Authorization", Prefix: "Bearer "}},
	})
	if err != nil {
		return Paid{}, err
	}
	if res.Status != 201 {
		return Paid{}, fmt.Errorf("the bank answered with status %d", res.Status)
	}
	var p Paid
	if err := res.JSON(&p); err != nil {
		return Paid{}, err
	}
	return p, c.Set("session:last_payment", p.ID)
}
