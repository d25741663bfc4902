package changewindow

import (
	"testing"
	"time"
	_ "time/tzdata"
)

// The database is read as package time reads its own.
func TestZones(t *testing.T) {
	for _, name := range []string{"Europe/Oslo", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Etc/GMT+5", "UTC"} {
		got, err := zone(name)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for day := range 366 {
			at := time.Date(2020, 1, 1, 0, 30, 0, 0, time.UTC).AddDate(0, 0, day)
			if g, w := at.In(got).Format(time.RFC3339), at.In(want).Format(time.RFC3339); g != w {
				t.Fatalf("%s: %s, want %s", name, g, w)
			}
		}
	}
	for _, name := range []string{"", "Local", "Europe", "Europe/", "europe/oslo", "Europe/Nowhere", "../Europe/Oslo"} {
		if _, err := zone(name); err == nil {
			t.Errorf("%q is a zone", name)
		}
	}
}
