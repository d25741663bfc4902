// Command weather is a plugin with two tools that use the web.
package main

import (
	"net/url"
	"strconv"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "weather", Version: "1.0.0",
		Requests: []string{"http GET api.weather.example/*", "http GET **/*"},
		Exports: []guest.Export{
			guest.Tool[Query, Forecast]{
				Name: "get_weather", Description: "Daily forecast for a place, up to seven days ahead.",
				Effects: guest.None, Handle: forecast,
			},
			guest.Tool[Address, Page]{
				Name: "fetch_page", Description: "Fetches a web page and returns its title and text.",
				Effects: guest.None, Handle: fetch,
			},
		},
	})
}

func main() {}

// Query asks for a forecast.
type Query struct {
	Place string `json:"place" doc:"town or city" min:"1" max:"80"`
	Days  int    `json:"days,omitempty" doc:"days ahead" min:"1" max:"7" default:"3"`
}

// Forecast is the answer to a Query.
type Forecast struct {
	Place string `json:"place"`
	Days  []Day  `json:"days"`
}

// Day is the forecast for one day.
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

// Address is a page to fetch.
type Address struct {
	URL string `json:"url" doc:"absolute address, https" min:"1" max:"2000"`
}

// Page is what a page says.
type Page struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

func fetch(c *guest.Call, in Address) (Page, error) {
	res, err := c.HTTP(guest.Request{URL: in.URL})
	if err != nil {
		return Page{}, err
	}
	if res.Status != 200 {
		return Page{}, guest.Fail("no_page", "the server answered %d", res.Status)
	}
	html := string(res.Body)
	p := Page{Title: between(html, "<title>", "</title>")}
	inTag := false
	for _, r := range between(html, "<body>", "</body>") {
		switch {
		case r == '<':
			inTag = true
			p.Text += " "
		case r == '>':
			inTag = false
		case !inTag:
			p.Text += string(r)
		}
	}
	p.Text = strings.Join(strings.Fields(p.Text), " ")
	return p, nil
}

// between returns what stands between two markers.
func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return strings.TrimSpace(s)
}
