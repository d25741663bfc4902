package main

import "testing"

// What makes fuel differ is told with what would fix it.
func TestCauseText(t *testing.T) {
	const unknown = "neither the time, nor randomness, nor kv explains it: it may measure time, or read its call's id"
	for _, c := range []struct {
		b                   callBench
		realClock, replayed bool
		want                string
	}{
		{callBench{FuelCauses: []string{causeClock}}, true, false, "the clock, which --now fixes"},
		{callBench{FuelCauses: []string{causeClock, causeKV}}, false, false, "the clock, which goes on with --grant clock; what earlier calls left in kv"},
		{callBench{FuelCauses: []string{causeRandom}}, false, false, "randomness, which --seed fixes, and with it the order of maps"},
		{callBench{FuelCauses: []string{causeUnknown}, HTTP: true}, true, true, unknown},
		{callBench{FuelCauses: []string{causeUnknown}, HTTP: true}, true, false, unknown + ", or answers of the network, which --replay fixes"},
		{callBench{FuelCauses: []string{causeUnknown}}, true, false, unknown},
	} {
		if got := c.b.causeText(c.realClock, c.replayed); got != c.want {
			t.Errorf("%v, real clock %t, replayed %t:\n got %q\nwant %q", c.b.FuelCauses, c.realClock, c.replayed, got, c.want)
		}
	}
}
