package capability_test

import (
	"fmt"
	"net/url"

	"github.com/sandboxd/sandboxd/capability"
)

func ExampleEffective() {
	parse := func(lines ...string) capability.Set {
		s, err := capability.ParseSet(lines)
		if err != nil {
			panic(err)
		}
		return s
	}
	request := parse("http GET,POST api.weather.example/v1/*", "log")
	ceiling := parse("http GET **.weather.example", "log", "clock")
	binding := parse("http GET,POST api.weather.example")

	grant := capability.Effective(request, ceiling, binding)
	fmt.Println(grant.Lines())

	u, _ := url.Parse("https://api.weather.example/v2/daily")
	if !grant.HTTP("GET", u) {
		fmt.Println("denied: need", capability.NeedHTTP("GET", u))
	}
	// Output:
	// [http GET api.weather.example/v1/*]
	// denied: need http GET api.weather.example/v2/daily
}

func ExampleCapability_Words() {
	c, err := capability.Parse("secret use STRIPE at api.stripe.com")
	fmt.Println(c.Words(), err)
	// Output: have the host put STRIPE into requests to api.stripe.com; never sees it <nil>
}
