package jail

import (
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	if got := (Limits{}).or(defaults); got != DefaultLimits() {
		t.Errorf("zero limits are %+v, want %+v", got, DefaultLimits())
	}
	got := Limits{CPU: time.Millisecond, Wall: time.Minute, Resident: -1}.or(defaults)
	if want := (Limits{time.Second, time.Minute, defaults.Resident, defaults.FileBytes}); got != want {
		t.Errorf("limits are %+v, want %+v", got, want)
	}
}
