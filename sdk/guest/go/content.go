package guest

import "strings"

// A Content is one message: parts, said by a role. Its JSON form, and that of the
// types below, is that of the Gemini REST API; members that a type does not know
// are kept.
type Content struct {
	Role  string // "user" or "model"
	Parts []Part

	arrived members
}

// A Part is one piece of a content. At most one of its fields is set, besides
// Thought. A part of a kind that is not here, such as inline data, has none.
type Part struct {
	Text             string
	Thought          bool
	FunctionCall     *FunctionCall
	FunctionResponse *FunctionResponse

	arrived members
}

// A FunctionCall is a model's wish to call a tool.
type FunctionCall struct {
	ID   string
	Name string
	Args Document

	arrived members
}

// A FunctionResponse is what a tool answered.
type FunctionResponse struct {
	ID       string
	Name     string
	Response Document

	arrived members
}

// A ModelRequest is what a model is about to be asked.
type ModelRequest struct {
	Model    string
	Contents []Content
	Config   Document // what the model is told besides: /systemInstruction, /tools, /temperature and so on

	arrived members
}

// A ModelResponse is what a model said, whole or in part.
type ModelResponse struct {
	Content
	Partial      bool // more of this content follows
	TurnComplete bool
	Interrupted  bool
	ErrorCode    string
	ErrorMessage string
	FinishReason string

	arrived members
}

// An Event is one record of a conversation.
type Event struct {
	ID           string
	InvocationID string
	Author       string // "user" or the name of an agent
	Branch       string
	ModelResponse
	Actions Document

	arrived members
}

// Text returns all texts of the parts, thoughts among them, joined in their order.
func (c *Content) Text() string {
	var text strings.Builder
	for i := range c.Parts {
		text.WriteString(c.Parts[i].Text)
	}
	return text.String()
}

func (c *Content) fields() []field {
	return []field{{"role", &c.Role}, {"parts", &c.Parts}}
}

func (p *Part) fields() []field {
	return []field{{"text", &p.Text}, {"thought", &p.Thought}, {"functionCall", &p.FunctionCall}, {"functionResponse", &p.FunctionResponse}}
}

func (f *FunctionCall) fields() []field {
	return []field{{"id", &f.ID}, {"name", &f.Name}, {"args", &f.Args}}
}

func (f *FunctionResponse) fields() []field {
	return []field{{"id", &f.ID}, {"name", &f.Name}, {"response", &f.Response}}
}

func (r *ModelRequest) fields() []field {
	return []field{{"model", &r.Model}, {"contents", &r.Contents}, {"config", &r.Config}}
}

func (r *ModelResponse) fields() []field {
	return []field{{"content", &r.Content}, {"partial", &r.Partial}, {"turnComplete", &r.TurnComplete}, {"interrupted", &r.Interrupted},
		{"errorCode", &r.ErrorCode}, {"errorMessage", &r.ErrorMessage}, {"finishReason", &r.FinishReason}}
}

func (e *Event) fields() []field {
	return append(e.ModelResponse.fields(),
		field{"id", &e.ID}, field{"invocationId", &e.InvocationID}, field{"author", &e.Author}, field{"branch", &e.Branch}, field{"actions", &e.Actions})
}

func (c *Content) arrives(m members)          { c.arrived = m }
func (p *Part) arrives(m members)             { p.arrived = m }
func (f *FunctionCall) arrives(m members)     { f.arrived = m }
func (f *FunctionResponse) arrives(m members) { f.arrived = m }
func (r *ModelRequest) arrives(m members)     { r.arrived = m }
func (r *ModelResponse) arrives(m members)    { r.arrived = m }
func (e *Event) arrives(m members)            { e.arrived = m }

// The two methods of each type are the same: read and write of members.go.

// UnmarshalJSON reads the REST form.
func (c *Content) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, c) }

// MarshalJSON writes the REST form.
func (c Content) MarshalJSON() ([]byte, error) { return write(c.arrived, c.fields()) }

// UnmarshalJSON reads the REST form.
func (p *Part) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, p) }

// MarshalJSON writes the REST form.
func (p Part) MarshalJSON() ([]byte, error) { return write(p.arrived, p.fields()) }

// UnmarshalJSON reads the REST form.
func (f *FunctionCall) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, f) }

// MarshalJSON writes the REST form.
func (f FunctionCall) MarshalJSON() ([]byte, error) { return write(f.arrived, f.fields()) }

// UnmarshalJSON reads the REST form.
func (f *FunctionResponse) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, f) }

// MarshalJSON writes the REST form.
func (f FunctionResponse) MarshalJSON() ([]byte, error) { return write(f.arrived, f.fields()) }

// UnmarshalJSON reads what before_model receives.
func (r *ModelRequest) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, r) }

// MarshalJSON writes what before_model receives.
func (r ModelRequest) MarshalJSON() ([]byte, error) { return write(r.arrived, r.fields()) }

// UnmarshalJSON reads the REST form.
func (r *ModelResponse) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, r) }

// MarshalJSON writes the REST form.
func (r ModelResponse) MarshalJSON() ([]byte, error) { return write(r.arrived, r.fields()) }

// UnmarshalJSON reads the REST form.
func (e *Event) UnmarshalJSON(data []byte) error { return unmarshalRecord(data, e) }

// MarshalJSON writes the REST form.
func (e Event) MarshalJSON() ([]byte, error) { return write(e.arrived, e.fields()) }
