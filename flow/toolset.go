package flow

// FilterToolset returns a toolset with only those tools of set that keep wants.
// It decides what is offered, not what is allowed: that is a guard's business.
func FilterToolset(set Toolset, keep func(*Spec) bool) Toolset {
	return &filtered{set, keep}
}

type filtered struct {
	Toolset
	keep func(*Spec) bool
}

func (f *filtered) Tools(ctx *Context) ([]Tool, error) {
	all, err := f.Toolset.Tools(ctx)
	if err != nil {
		return nil, err
	}
	var tools []Tool
	for _, t := range all {
		if f.keep(t.Spec()) {
			tools = append(tools, t)
		}
	}
	return tools, nil
}

func (f *filtered) ProcessRequest(ctx *CallbackContext, req *Request) error {
	return processSet(f.Toolset, ctx, req)
}

// ConfirmToolset returns a toolset whose executable tools ask a person first:
// always, or when the predicate says so, if there is one. A tool that asks by
// itself goes on asking. Tools that cannot be called are passed on as they are.
func ConfirmToolset(set Toolset, always bool, when func(args map[string]any) bool) Toolset {
	return &confirmed{set, always, when}
}

type confirmed struct {
	Toolset
	always bool
	when   func(map[string]any) bool
}

func (c *confirmed) Tools(ctx *Context) ([]Tool, error) {
	all, err := c.Toolset.Tools(ctx)
	if err != nil {
		return nil, err
	}
	tools := make([]Tool, len(all))
	for i, t := range all {
		spec := *t.Spec()
		own := *t.Spec()
		outer := Spec{Confirm: c.always, ConfirmIf: c.when}
		spec.ConfirmIf = func(args map[string]any) bool { return outer.asks(args) || own.asks(args) }
		switch t := t.(type) {
		case Handler:
			tools[i] = &confirmedHandler{t, &spec}
		case Streamer:
			tools[i] = &confirmedStreamer{t, &spec}
		default:
			tools[i] = t
		}
	}
	return tools, nil
}

func (c *confirmed) ProcessRequest(ctx *CallbackContext, req *Request) error {
	return processSet(c.Toolset, ctx, req)
}

func processSet(set Toolset, ctx *CallbackContext, req *Request) error {
	if p, ok := set.(RequestProcessor); ok {
		return p.ProcessRequest(ctx, req)
	}
	return nil
}

type confirmedHandler struct {
	Handler
	spec *Spec
}

func (h *confirmedHandler) Spec() *Spec { return h.spec }

func (h *confirmedHandler) ProcessRequest(ctx *CallbackContext, req *Request) error {
	return processTool(h.Handler, ctx, req)
}

type confirmedStreamer struct {
	Streamer
	spec *Spec
}

func (s *confirmedStreamer) Spec() *Spec { return s.spec }

func (s *confirmedStreamer) ProcessRequest(ctx *CallbackContext, req *Request) error {
	return processTool(s.Streamer, ctx, req)
}

func processTool(t Tool, ctx *CallbackContext, req *Request) error {
	if p, ok := t.(RequestProcessor); ok {
		return p.ProcessRequest(ctx, req)
	}
	return nil
}
