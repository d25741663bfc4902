// Command payments is a plugin with a tool that pays and one that looks. Nothing is
// paid: what matters here is who may ask for it.
package main

import (
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "payments", Version: "1.0.0",
		Exports: []guest.Export{
			guest.Tool[Payment, Receipt]{
				Name: "pay_invoice", Description: "Pays an invoice.",
				Effects: guest.Once, Handle: pay,
			},
			guest.Tool[Query, Invoice]{
				Name: "read_invoice", Description: "Says what an invoice asks for.",
				Effects: guest.None, Handle: read,
			},
		},
	})
}

func main() {}

// Payment is what to pay.
type Payment struct {
	Invoice  string `json:"invoice" doc:"such as INV-7"`
	Amount   string `json:"amount" doc:"such as 12.50"`
	Currency string `json:"currency" doc:"such as EUR"`
}

// Receipt says what was paid.
type Receipt struct {
	Paid     string `json:"paid"`
	Currency string `json:"currency"`
}

func pay(_ *guest.Call, in Payment) (Receipt, error) {
	return Receipt{Paid: in.Amount, Currency: in.Currency}, nil
}

// Query names an invoice.
type Query struct {
	Invoice string `json:"invoice" doc:"such as INV-7"`
}

// Invoice is what is owed.
type Invoice struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

var invoices = map[string]Invoice{"INV-7": {"12.50", "EUR"}, "INV-8": {"1250.00", "EUR"}, "INV-9": {"9000.00", "EUR"}}

func read(_ *guest.Call, in Query) (Invoice, error) {
	i, ok := invoices[in.Invoice]
	if !ok {
		return Invoice{}, guest.Fail("unknown_invoice", "no invoice %q", in.Invoice)
	}
	return i, nil
}
