// A plugin with one tool. It is built with the plain Go toolchain:
//
//	sandboxd plugin build
package main

import (
	"net/url"
	"strconv"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "weather", Version: "0.1.0",
		// What the plugin asks for. An operator grants it, or a part of it.
		Requests: []string{"http GET api.weather.example/v1/*"},
		Exports: []guest.Export{
			guest.Tool[Query, Forecast]{
				Name: "get_weather", Description: "Daily forecast for a place, up to seven days ahead.",
				Effects: guest.None, Handle: forecast,
			},
			// A hook sees every call of a tool and may change or answer it:
			//
			//	guest.Hooks{BeforeTool: func(c *guest.Call, t *guest.ToolCall) (any, error) {
			//		c.Log(guest.LevelInfo, "%s is called", t.Name) // ask for the capability "log"
			//		return nil, nil
			//	}},
		},
	})
}

func main() {}

// A Query is what the model asks. The host checks it before forecast runs.
type Query struct {
	Place string `json:"place" doc:"town or city" min:"1" max:"80"`
	Days  int    `json:"days,omitempty" doc:"days ahead" min:"1" max:"7" default:"3"`
}

// A Forecast is what the model reads.
type Forecast struct {
	Place string `json:"place"`
	Days  []Day  `json:"days"`
}

// A Day is one day of a forecast.
type Day struct {
	Date    string  `json:"date"`
	MinC    float64 `json:"min_c"`
	MaxC    float64 `json:"max_c"`
	Summary string  `json:"summary"`
}

func forecast(c *guest.Call, in Query) (Forecast, error) {
	q := url.Values{"q": {in.Place}, "days": {strconv.Itoa(in.Days)}}
	res, err := c.HTTP(guest.Request{URL: "https://api.weather.example/v1/daily?" + q.Encode()})
	if err != nil {
		return Forecast{}, err
	}
	if res.Status == 404 {
		return Forecast{}, guest.Fail("unknown_place", "no place called %q", in.Place)
	}
	var out Forecast
	err = res.JSON(&out)
	return out, err
}
