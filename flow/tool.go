package flow

// A Tool is something that takes part in a request under a name.
type Tool interface {
	Name() string
	Description() string
}
