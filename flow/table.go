package flow

import (
	"maps"
	"slices"
)

// A toolTable is what can be executed in answer to one request, by name.
type toolTable struct {
	byName map[string]Tool
}

func (t *toolTable) names() []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.byName))
}
