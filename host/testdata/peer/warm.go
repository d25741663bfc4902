//go:build !cold

package main

import "encoding/json"

// warmUp has encoding/json learn the types, once.
//
//go:wasmexport warm_up
func warmUp() {
	var q Query
	if err := json.Unmarshal([]byte(`{"city":"x"}`), &q); err != nil {
		panic(err)
	}
	if _, err := json.Marshal(Forecast{City: q.City}); err != nil {
		panic(err)
	}
}
