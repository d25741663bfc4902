package views

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

var label = regexp.MustCompile(`^[0-9A-Za-z_-]{1,40}$`)

// CheckPatterns refuses regular expressions, by the names that stand for what they match,
// that are none or that match nothing at all, and names that are no labels.
func CheckPatterns(patterns map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		expr := patterns[name]
		re, err := regexp.Compile(expr)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("patterns.%s: %w", name, err))
		case re.MatchString(""):
			errs = append(errs, fmt.Errorf("patterns.%s: %q matches the empty text", name, expr))
		case !label.MatchString(name):
			errs = append(errs, fmt.Errorf("patterns: name %q: want letters, digits, _ and -", name))
		}
	}
	return errors.Join(errs...)
}
