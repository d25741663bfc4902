// Weather is the plugin that the guide for authors begins with.
package main

import (
	"net/url"
	"strconv"

	"github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "weather", Version: "1.0.0",
		Requests: []string{"http GET api.weather.example/v1/*"},
		Exports: []guest.Export{guest.Tool[Query, Forecast]{
			Name: "get_weather", Description: "Daily forecast for a place, up to seven days ahead.",
			Effects: guest.None, Handle: forecast,
		}},
	})
}

func main() {}

// A Query asks for the forecast of one place.
type Query struct {
	Place string `json:"place" doc:"town or city" min:"1" max:"80"`
	Days  int    `json:"days,omitempty" doc:"days ahead" min:"1" max:"7" default:"3"`
}

// A Forecast is what the service answers.
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
