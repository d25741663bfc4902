package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// What the grants of a test allow.
const (
	rates    = "http GET rates.example/v1/*"
	currency = "state read user:currency"
)

const data = "../../../../../internal/guestlang/testdata/" // cassettes of the tables of all languages

func TestPrice(t *testing.T) {
	for _, test := range []struct{ name, args, want, cassette string }{
		{"exact", `{"currency":"EUR","lines":[{"name":"a","price":9007199254740992},{"name":"b","price":9007199254740993}]}`, `{"count":2,"currency":"EUR","highest":9007199254740993,"longest":"a"}`, ""},
		{"as written", `{"currency":"EUR","lines":[{"name":"a","price":"12.50"},{"name":"b","price":9}]}`, `{"count":2,"currency":"EUR","highest":12.50,"longest":"a"}`, ""},
		{"below zero", `{"currency":"EUR","lines":[{"name":"a","price":-2},{"name":"b","price":-1.5}]}`, `{"count":2,"currency":"EUR","highest":-1.5,"longest":"a"}`, ""},
		{"characters", `{"currency":"EUR","lines":[{"name":"größer","price":1},{"name":"abcdefg","price":1}]}`, `{"count":2,"currency":"EUR","highest":1,"longest":"abcdefg"}`, ""},
		{"of the user", `{"lines":[{"name":"a","price":1}]}`, `{"count":1,"currency":"CHF","highest":1,"longest":"a"}`, ""},
		{"a rate", `{"currency":"EUR","rate":true,"lines":[{"name":"a","price":1}]}`, `{"count":1,"currency":"EUR","highest":1,"longest":"a","rate":1.08340000000000000001}`, data + "http/rates.json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := guesttest.Host{Grants: []string{rates, currency, "log"}, State: map[string]string{"user:currency": `"CHF"`}, Cassette: test.cassette}
			got := host.Tool(t, "price_order", test.args)
			if got.Code != abi.OK || string(got.Value) != test.want || len(got.Logs) != 1 {
				t.Errorf("got %s %s %q, logs %q, want %s", got.Code, got.Value, got.Message, got.Logs, test.want)
			}
		})
	}
}

func TestPriceFails(t *testing.T) {
	for _, test := range []struct {
		name, args string
		status     int // of the rate service; 0: it is not asked
		fail, says string
	}{
		{"no lines", `{"currency":"EUR","lines":[]}`, 0, "no_lines", "an order has at least one line"},
		{"no price", `{"currency":"EUR","lines":[{"name":"a","price":1},{"name":"b"}]}`, 0, "bad_price", "line 2 has no price"},
		{"a comma", `{"currency":"EUR","lines":[{"name":"a","price":"12,50"}]}`, 0, "bad_price", "line 1 has no price"},
		{"no rate", `{"currency":"XXX","rate":true,"lines":[{"name":"a","price":1}]}`, 404, "unknown_currency", `there is no rate for "XXX"`},
		{"a broken service", `{"currency":"EUR","rate":true,"lines":[{"name":"a","price":1}]}`, 503, "", "the rate service answered 503"},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			host := guesttest.Host{Grants: []string{rates}, HTTP: func(r *http.Request) (*http.Response, error) {
				asked++
				return &http.Response{StatusCode: test.status, Body: http.NoBody, Request: r}, nil
			}}
			got := host.Tool(t, "price_order", test.args)
			if got.Code != abi.GuestError || got.Fail != test.fail || got.Message != test.says {
				t.Errorf("got %s %q: %s, want %q: %s", got.Code, got.Fail, got.Message, test.fail, test.says)
			}
			if (asked == 1) != (test.status != 0) {
				t.Errorf("the service was asked %d times", asked)
			}
		})
	}
}

func TestPriceWithoutGrants(t *testing.T) {
	for args, want := range map[string]string{
		`{"lines":[{"name":"a","price":1}]}`:                              currency,
		`{"currency":"EUR","rate":true,"lines":[{"name":"a","price":1}]}`: "http GET rates.example/v1/EUR",
	} {
		var host guesttest.Host
		if got := host.Tool(t, "price_order", args); got.Code != abi.GuestError || !slices.Equal(got.Denied, []string{want}) {
			t.Errorf("%s: got %s: %s, denied %q, want %q", args, got.Code, got.Message, got.Denied, want)
		}
	}
}

func TestComplete(t *testing.T) {
	for _, test := range []struct {
		name, tool, args, configured string
		want                         guesttest.Result
	}{
		{"adds", "price_order", `{"lines":[]}`, "CHF", guesttest.Result{Changed: []byte(`{"currency":"CHF","lines":[]}`)}},
		{"leaves what is there", "price_order", `{"currency":"EUR","lines":[]}`, "CHF", guesttest.Result{}},
		{"leaves an empty text", "price_order", `{"currency":"","lines":[]}`, "CHF", guesttest.Result{}},
		{"has nothing to add", "price_order", `{"lines":[]}`, "", guesttest.Result{}},
		{"leaves other tools", "other", `{"currency":"???"}`, "CHF", guesttest.Result{}},
		{"answers", "price_order", `{"currency":"none"}`, "CHF", guesttest.Result{Value: []byte(`{"count":0}`)}},
		{"refuses", "price_order", `{"currency":"???"}`, "CHF", guesttest.Result{Code: abi.ToolError, Message: `the currency "???" is not known`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := guesttest.Host{Config: map[string]string{"currency": test.configured}}
			got := host.Hook(t, abi.HookCall{Hook: abi.BeforeTool, Tool: test.tool, Args: json.RawMessage(test.args)})
			if test.want.Code == "" {
				test.want.Code = abi.OK
			}
			if got.Code != test.want.Code || got.Message != test.want.Message || string(got.Value) != string(test.want.Value) || string(got.Changed) != string(test.want.Changed) {
				t.Errorf("got %s %q, answer %s, changed %s, want %+v", got.Code, got.Message, got.Value, got.Changed, test.want)
			}
		})
	}
}
