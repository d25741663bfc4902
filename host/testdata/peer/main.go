// Command peer is a guest of Extism's Go PDK, for benchmarks that run it here and with Extism's
// own SDK: "weather" answers a forecast, "echo" its input.
package main

import "github.com/extism/go-pdk"

// A Query asks for the weather of a city.
type Query struct {
	City string `json:"city"`
}

// A Forecast is the weather of a city.
type Forecast struct {
	City         string  `json:"city"`
	TemperatureC float64 `json:"temperature_c"`
	Condition    string  `json:"condition"`
}

func main() {}

//go:wasmexport weather
func weather() int32 {
	var q Query
	if err := pdk.InputJSON(&q); err != nil {
		pdk.SetError(err)
		return 1
	}
	if err := pdk.OutputJSON(Forecast{City: q.City, TemperatureC: 21.5, Condition: "sunny"}); err != nil {
		pdk.SetError(err)
		return 1
	}
	return 0
}

//go:wasmexport echo
func echo() int32 {
	pdk.Output(pdk.Input())
	return 0
}
