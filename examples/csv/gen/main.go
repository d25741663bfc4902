// Command gen writes the readings of four river gauges: 20,000 rows from a fixed
// seed, with the faults that real files have. The output is the same every time.
package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	w := bufio.NewWriter(os.Stdout)
	if err := write(w); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	if err := w.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

const (
	hours = 5000 // readings of each station, one an hour
	seed  = 20250517
)

var stations = []struct {
	name        string
	base, swing float64 // cm
	flowFactor  float64 // m³/s for each cm
}{
	{"Nordbru", 180, 210, 0.42},
	{"Elvedal", 95, 120, 0.31},
	{"Storfoss", 240, 130, 0.66},
	{"Lillebekk", 40, 55, 0.12},
}

// write writes the file. Lines end in CRLF. Some levels are missing, some are
// words, some notes have quotes, commas and line breaks, and three rows are broken.
func write(w io.Writer) error {
	r := rand.New(rand.NewPCG(seed, seed))
	if _, err := fmt.Fprint(w, "station,time,level_cm,flow_m3s,note\r\n"); err != nil {
		return err
	}
	begin := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range hours {
		at := begin.Add(time.Duration(h) * time.Hour)
		thaw := math.Exp(-math.Pow(float64(h-3276)/420, 2)) // the middle of May
		for i, s := range stations {
			cm := s.base + s.swing*thaw + 6*math.Sin(float64(h)/11+float64(i)) + 4*r.NormFloat64()
			level, note := fmt.Sprintf("%.1f", cm), ""
			switch n := r.IntN(1000); {
			case n < 4:
				level = ""
			case n < 6:
				level, note = "ice", "gauge frozen"
			case n < 16:
				note = `"checked by hand, ""ok"""`
			case n < 18:
				note = "\"two lines:\r\nsecond one\""
			}
			row := fmt.Sprintf("%s,%s,%s,%.2f,%s\r\n", s.name, at.Format("2006-01-02T15:04Z"), level, cm*s.flowFactor, note)
			switch [2]int{h, i} {
			case [2]int{1000, 0}:
				row = s.name + "," + at.Format("2006-01-02T15:04Z") + "\r\n" // cut short
			case [2]int{2000, 1}:
				row = s.name + "," + at.Format("2006-01-02T15:04Z") + ",12\"3.4,1.00,bad quote\r\n"
			case [2]int{4000, 2}:
				row = s.name + "," + at.Format("2006-01-02T15:04Z") + ",NaN,1.00,not a number,one field too many\r\n"
			}
			if _, err := io.WriteString(w, row); err != nil {
				return err
			}
		}
	}
	return nil
}
