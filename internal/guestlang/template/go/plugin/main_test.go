package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// Unit tests run the handler natively, on a fake host that is as strict as the real
// one: go test. What is shipped is the module, which sandboxd plugin test runs.

const grant = "http GET api.weather.example/v1/*"

func TestForecast(t *testing.T) {
	host := guesttest.Host{Grants: []string{grant}, Cassette: "tests/http/oslo.json"}
	got := host.Tool(t, "get_weather", `{"place":"Oslo"}`)
	if got.Code != abi.OK {
		t.Fatalf("%s: %s", got.Code, got.Message)
	}
	var out Forecast
	if err := json.Unmarshal(got.Value, &out); err != nil || len(out.Days) != 3 || out.Days[0].Summary != "snow" {
		t.Errorf("got %s, error %v", got.Value, err)
	}
}

func TestUnknownPlace(t *testing.T) {
	host := guesttest.Host{Grants: []string{grant}, Cassette: "tests/http/none.json"}
	if got := host.Tool(t, "get_weather", `{"place":"Qqq"}`); got.Fail != "unknown_place" {
		t.Errorf("got %s %q: %s", got.Code, got.Fail, got.Message)
	}
}

func TestWithoutGrants(t *testing.T) {
	var host guesttest.Host
	got := host.Tool(t, "get_weather", `{"place":"Oslo"}`)
	if got.Code != abi.GuestError || !slices.Equal(got.Denied, []string{"http GET api.weather.example/v1/daily"}) {
		t.Errorf("got %s: %s, denied %q", got.Code, got.Message, got.Denied)
	}
}

func TestArguments(t *testing.T) {
	var host guesttest.Host
	for _, args := range []string{`{}`, `{"place":""}`, `{"place":"Oslo","days":8}`, `{"place":"Oslo","place":"Bergen"}`} {
		if got := host.Tool(t, "get_weather", args); got.Code != abi.ArgsInvalid {
			t.Errorf("%s: got %s: %s", args, got.Code, got.Message)
		}
	}
}
