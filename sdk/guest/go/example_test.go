package guest_test

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/sdk/guest/go"
)

// A plugin calls Serve in an init function and has an empty main function.
func ExampleServe() {
	type Query struct {
		Place string `json:"place" doc:"town or city" min:"1" max:"80"`
		Days  int    `json:"days,omitempty" doc:"days ahead" min:"1" max:"7" default:"3"`
	}
	type Forecast struct {
		Place   string `json:"place"`
		Summary string `json:"summary"`
	}
	guest.Serve(guest.Plugin{
		Name: "weather", Version: "1.0.0",
		Requests: []string{"http GET api.weather.example/v1/*"},
		Exports: []guest.Export{guest.Tool[Query, Forecast]{
			Name: "get_weather", Description: "Daily forecast for a place, up to seven days ahead.",
			Effects: guest.None,
			Handle: func(c *guest.Call, in Query) (Forecast, error) {
				res, err := c.HTTP(guest.Request{URL: "https://api.weather.example/v1/daily?days=" + strconv.Itoa(in.Days)})
				if err != nil {
					return Forecast{}, err
				}
				if res.Status == 404 {
					return Forecast{}, guest.Fail("unknown_place", "no place called %q", in.Place)
				}
				var out Forecast
				err = res.JSON(&out)
				return out, err
			},
		}},
	})
}

// An artifact is read as it is needed, never as a whole.
func ExampleCall_Artifact() {
	type Ask struct {
		File   string `json:"file"`
		Column string `json:"column"`
	}
	type Stats struct {
		Rows    int     `json:"rows"`
		Skipped int     `json:"skipped"`
		Mean    float64 `json:"mean"`
	}
	guest.Serve(guest.Plugin{Name: "csvstats", Version: "1.0.0", Requests: []string{"artifact read *.csv"},
		Exports: []guest.Export{guest.Tool[Ask, Stats]{
			Name: "column_mean", Description: "Count and mean of one numeric CSV column.", Effects: guest.None,
			Handle: func(c *guest.Call, in Ask) (Stats, error) {
				f, err := c.Artifact(in.File)
				if err != nil {
					return Stats{}, err
				}
				rows := csv.NewReader(f)
				rows.ReuseRecord = true
				head, err := rows.Read()
				if err != nil {
					return Stats{}, guest.Fail("bad_csv", "%s has no header row", in.File)
				}
				col := slices.Index(head, in.Column)
				if col < 0 {
					return Stats{}, guest.Fail("no_such_column", "columns are: %s", strings.Join(head, ", "))
				}
				var s Stats
				for {
					rec, err := rows.Read()
					if err == io.EOF {
						return s, nil
					}
					if err != nil {
						return Stats{}, guest.Fail("bad_csv", "%v", err)
					}
					v, err := strconv.ParseFloat(rec[col], 64)
					if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
						s.Skipped++
						continue
					}
					s.Rows++
					s.Mean += (v - s.Mean) / float64(s.Rows)
				}
			},
		}}})
}

// A streaming tool hands out what it finds at once.
func ExampleStream() {
	type Find struct {
		File string `json:"file"`
		Text string `json:"text"`
	}
	type Line struct {
		N    int    `json:"n"`
		Text string `json:"text"`
	}
	guest.Serve(guest.Plugin{Name: "logs", Version: "1.0.0", Requests: []string{"artifact read logs/*", "emit"},
		Exports: []guest.Export{guest.Stream[Find, Line]{
			Name: "find_lines", Description: "Streams log lines that contain a text.", Effects: guest.None,
			Handle: func(c *guest.Call, in Find, emit func(Line) error) error {
				f, err := c.Artifact("logs/" + in.File)
				if err != nil {
					return err
				}
				lines := bufio.NewScanner(f)
				for n := 1; lines.Scan(); n++ {
					if strings.Contains(lines.Text(), in.Text) {
						if err := emit(Line{n, lines.Text()}); err != nil {
							return err
						}
					}
				}
				return lines.Err()
			},
		}}})
}

// A job starts work elsewhere; the id of the call is how its result finds back.
func ExampleJob() {
	type Month struct {
		Month string `json:"month"`
	}
	type Ticket struct {
		Status string `json:"status"`
		Ticket string `json:"ticket"`
	}
	guest.Serve(guest.Plugin{Name: "reports", Version: "1.0.0", Requests: []string{"http POST jobs.reports.example/v2/*"},
		Exports: []guest.Export{guest.Job[Month, Ticket]{
			Name: "build_report", Description: "Starts a monthly report; the result arrives later.", Effects: guest.Idempotent,
			Start: func(c *guest.Call, in Month) (Ticket, error) {
				res, err := c.HTTP(guest.Request{Method: "POST", URL: "https://jobs.reports.example/v2/reports",
					Header: map[string]string{"Idempotency-Key": c.ID()},
					JSON:   map[string]string{"month": in.Month, "callback": c.ID()}})
				if err != nil {
					return Ticket{}, err
				}
				var t Ticket
				err = res.JSON(&t)
				return t, err
			},
		}}})
}

// A secret is used by name; its value stays with the host.
func ExampleUseSecret() {
	type Payment struct {
		Invoice  string `json:"invoice"`
		Amount   string `json:"amount" doc:"decimal text, 1250.00" pattern:"^[0-9]{1,9}\\.[0-9]{2}$"`
		Currency string `json:"currency" enum:"EUR,USD"`
	}
	type Paid struct {
		ID string `json:"id"`
	}
	guest.Serve(guest.Plugin{Name: "payments", Version: "1.0.0",
		Requests: []string{"http POST pay.bank.example/v1/payments", "secret use BANK_TOKEN at pay.bank.example", "state write session:last_payment"},
		Exports: []guest.Export{guest.Tool[Payment, Paid]{
			Name: "pay_invoice", Description: "Pays one invoice.", // Effects: zero is Once
			Handle: func(c *guest.Call, in Payment) (Paid, error) {
				res, err := c.HTTP(guest.Request{Method: "POST", URL: "https://pay.bank.example/v1/payments", JSON: in,
					Header:  map[string]string{"Idempotency-Key": c.ID()},
					Secrets: []guest.UseSecret{{Secret: "BANK_TOKEN", Header: "Authorization", Prefix: "Bearer "}}})
				if errors.Is(err, guest.ErrDenied) {
					return Paid{}, guest.Fail("not_allowed", "this agent may not pay")
				}
				if err != nil {
					return Paid{}, err
				}
				var p Paid
				if err := res.JSON(&p); err != nil {
					return Paid{}, err
				}
				return p, c.Set("session:last_payment", p.ID)
			},
		}}})
}

// Hooks change what they are given and return nil to let the run go on.
func ExampleHooks() {
	guest.Serve(guest.Plugin{Name: "house-rules", Version: "1.0.0", Requests: []string{"state read user:units"},
		Exports: []guest.Export{guest.Hooks{
			BeforeTool: func(c *guest.Call, t *guest.ToolCall) (any, error) {
				var unit string
				if ok, err := c.Get("user:units", &unit); err != nil || !ok || t.Args.Has("unit") {
					return nil, err
				}
				t.Args.Set("unit", unit)
				return nil, nil
			},
			AfterModel: func(c *guest.Call, r *guest.ModelResponse) (*guest.ModelResponse, error) {
				if n := len(r.Parts); n > 0 && strings.Contains(r.Parts[n-1].Text, "°") {
					r.Parts[n-1].Text += "\n(Forecasts are estimates.)"
				}
				return nil, nil
			},
		}}})
}

// A guard judges exact amounts, never floating-point ones.
func ExampleGuard() {
	type Settings struct {
		Tool  string        `json:"tool"`
		Ask   guest.Decimal `json:"ask_from" doc:"a person decides from here"`
		Never guest.Decimal `json:"deny_from"`
	}
	guest.Serve(guest.Plugin{Name: "payment-limit", Version: "1.0.0",
		Exports: []guest.Export{guest.Guard[Settings]{
			Name: "payment-limit", Phases: []guest.Phase{guest.PhaseCall},
			Check: func(s Settings) error {
				if s.Ask.Cmp(s.Never) > 0 {
					return errors.New("ask_from is above deny_from, so nothing would ever be asked")
				}
				return nil
			},
			Judge: func(q *guest.Question, s Settings) guest.Verdict {
				if q.Tool.Name != s.Tool {
					return guest.Allow()
				}
				amount, err := q.Args.Decimal("/amount")
				switch {
				case err != nil || amount.Sign() <= 0:
					return guest.Deny("bad_amount", "the amount is not a positive decimal", guest.Why{At: "/amount"})
				case amount.Cmp(s.Never) >= 0:
					return guest.Deny("over_limit", "payments of "+s.Never.String()+" and more are not made here")
				case amount.Cmp(s.Ask) >= 0:
					return guest.Confirm("Pay " + amount.String() + "?")
				}
				return guest.Allow()
			},
		}}})
}

func ExampleDecimal() {
	a, _ := guest.ParseDecimal("1250.00")
	b, _ := guest.ParseDecimal("1.25e3")
	fmt.Println(a, b, a.Cmp(b), a.Sign())
	_, err := guest.ParseDecimal("1,250")
	fmt.Println(err)
	// Output:
	// 1250.00 1.25e3 0 1
	// decimal "1,250": not a number as JSON writes it
}

func ExampleDocument() {
	var d guest.Document
	_ = json.Unmarshal([]byte(`{"lines":[{"sku":"a","price":1.50}]}`), &d)
	price, err := d.Decimal("/lines/0/price")
	fmt.Println(price, err)
	d.Set("/lines/0/sku", "b")
	d.Set("note", "changed")
	out, err := json.Marshal(d)
	fmt.Println(string(out), err)
	// Output:
	// 1.50 <nil>
	// {"lines":[{"price":1.50,"sku":"b"}],"note":"changed"} <nil>
}
