package regobuild_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// BenchmarkJudge times one judgement of the example's guard, and of one in Go that says
// the same. ratio is that of the medians.
func BenchmarkJudge(b *testing.B) {
	limits := host.Limits{Wall: 5 * time.Second}
	native := 0.0
	payment := row{Tool: "pay_invoice", Args: json.RawMessage(`{"amount":"12.50","currency":"EUR","invoice":"INV-7"}`)}
	for _, c := range []struct {
		name  string
		guard flow.Guard
		q     *abi.Question
	}{
		{"go", policies.Func("amounts", inGo, abi.PhaseCall), payment.question(b, settings)},
		{"rego", open(b, module, settings, limits), payment.question(b, settings)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				from := time.Now()
				v, err := c.guard.Judge(b.Context(), c.q)
				took = append(took, time.Since(from))
				if err != nil || v.Ruling != abi.RulingAllow {
					b.Fatal(v, err)
				}
			}
			slices.Sort(took)
			p50 := float64(took[len(took)/2].Nanoseconds()) / 1e3
			if native == 0 {
				native = p50
			}
			b.ReportMetric(p50, "p50-µs")
			b.ReportMetric(p50/native, "ratio")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
		})
	}
}

var (
	amountForm  = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.[0-9]{2}$`)
	invoiceForm = regexp.MustCompile(`^INV-[0-9]{1,6}$`)
)

// inGo is the policy of the example in Go.
func inGo(_ context.Context, q *abi.Question) abi.Verdict {
	var s struct {
		Currencies []string `json:"currencies"`
		AskFrom    float64  `json:"ask_from"`
		DenyFrom   float64  `json:"deny_from"`
		FreeTools  []string `json:"free_tools"`
	}
	var args struct{ Invoice, Amount, Currency string }
	if json.Unmarshal(q.Settings, &s) != nil || json.Unmarshal(q.Call.Args, &args) != nil {
		return abi.Deny("bad", "not understood")
	}
	if slices.Contains(s.FreeTools, q.Call.Tool) {
		return abi.Allow()
	}
	amount, err := strconv.ParseFloat(args.Amount, 64)
	switch {
	case q.Call.Tool != "pay_invoice":
		return abi.Deny("no_rule", "no rule allowed this call")
	case err != nil || !amountForm.MatchString(args.Amount) || amount <= 0 || !invoiceForm.MatchString(args.Invoice) || !slices.Contains(s.Currencies, args.Currency):
		return abi.Deny("not_payable", "not payable")
	case amount >= s.DenyFrom:
		return abi.Deny("over_limit", "too much")
	case amount >= s.AskFrom:
		return abi.Confirm("", "Pay "+args.Amount+"?")
	}
	return abi.Allow()
}
