package views

import (
	"strings"
	"testing"
)

func BenchmarkTexts(b *testing.B) {
	for name, text := range map[string]string{
		"plain":    strings.Repeat("The town hall is open from nine to five. ", 100),
		"entities": "tok&#95;demo&lowbar;0123456789abcdefghij",
		"cyrillic": strings.Repeat("Ратуша открыта с девяти до пяти. ", 100),
		"wide":     "ｔｏｋ_demo_0123456789abcdefghij",
	} {
		b.Run(name, func(b *testing.B) {
			views := 0
			for b.Loop() {
				views = 0
				if _, err := Texts(text, func(View) bool { views++; return true }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(views), "views")
		})
	}
}
