// Package guesttest is a fake host for the unit tests of plugins and policies in Go. It
// calls the tools, hooks and guards of the package that is tested as a host does, but
// natively: with the debugger, the coverage and the fuzzing of go test.
//
//	func TestForecast(t *testing.T) {
//		host := guesttest.Host{Grants: []string{"http GET api.weather.example/v1/*"}, Cassette: "tests/http/oslo.json"}
//		got := host.Tool(t, "get_weather", `{"place":"Oslo"}`)
//		if got.Code != abi.OK {
//			t.Fatalf("%s: %s", got.Code, got.Message)
//		}
//	}
//
// It is as strict as the real host, for it is made of the same code: documents are
// parsed, arguments, results and settings are checked against the schemas of the
// manifest, grants are judged, names, sizes and counts are bounded, addresses and
// redirects of requests are looked at, secrets are put in and taken out, and
// answers and verdicts are read as there. A zero [Host] grants nothing and has nothing.
// A table of calls that the real host answers, too, shows that both agree. One text may differ:
// what a schema refuses in settings is told here in the words of the validator, and by an app that
// is started in words for an operator, as in "/ask_from: want text, have number 1000". What is refused is the same.
//
// A call runs in a bubble of [testing/synctest]: time.Now is the time of the call, as
// in a sandbox, and stands still unless the handler waits, which takes no time. So does
// what a cassette delays, and a call that waits past its limit ends as one there. A goroutine
// that outlives its call fails the test, and a test cannot call from a bubble of its own.
//
// What only a sandbox can do is not done: work, memory and depth of calls are not
// counted, a handler that loops is not stopped, what it prints is printed, variables of the package are kept from
// call to call, and what a sandbox lacks, such as files, is there. Run
// "sandboxd plugin test" as well: it tests the module that is shipped.
package guesttest
