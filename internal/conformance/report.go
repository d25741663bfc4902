package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Mode says what handlers and hooks are made of.
type Mode string

// The modes.
const (
	ModeNative Mode = "native" // Go code in this process
	ModeWasm   Mode = "wasm"   // a guest each
	ModeBoth   Mode = "both"   // once so and once so; a vector passes if both pass
)

// Options say how vectors are run. The zero value is usable.
type Options struct {
	Handlers Mode // default ModeNative

	// How the scripted guest is built and run; not used by ModeNative.
	Build  guestbuild.Options
	Engine host.Config
}

// A Report is how vectors did.
type Report struct {
	Handlers Mode
	Results  []Result // in the order of the vectors
}

// Run runs vectors, as many at a time as there are processors. The scripted guest
// is built first if the mode needs it. An error means that vectors could not be run
// or that ctx ended; a vector that fails is a result.
func Run(ctx context.Context, vectors []*Vector, o Options) (*Report, error) {
	r := &Report{Handlers: o.Handlers}
	if r.Handlers == "" {
		r.Handlers = ModeNative
	}
	var handlers []Handlers
	switch r.Handlers {
	case ModeNative, ModeBoth:
		handlers = append(handlers, Native)
	case ModeWasm:
	default:
		return nil, fmt.Errorf("handlers %q: want native, wasm or both", string(r.Handlers))
	}
	if r.Handlers != ModeNative {
		g, err := OpenGuests(ctx, o.Build, o.Engine)
		if err != nil {
			return nil, err
		}
		defer g.Close()
		handlers = append(handlers, g)
	}
	r.Results = checkAll(ctx, vectors, handlers...)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r, nil
}

// checkAll runs each vector once with each of one or two kinds of handlers. A
// vector that ctx did not leave time for has no verdict.
func checkAll(ctx context.Context, vectors []*Vector, handlers ...Handlers) []Result {
	results := make([]Result, len(vectors))
	each(len(vectors), func(i int) {
		if ctx.Err() != nil {
			return
		}
		results[i] = Check(ctx, vectors[i], handlers[0])
		if len(handlers) > 1 {
			results[i] = join(results[i], Check(ctx, vectors[i], handlers[1]))
		}
	})
	return results
}

// each calls f with 0 to n-1, on as many goroutines as there are processors, and
// waits for them.
func each(n int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// join makes one result of a vector's two: what both say, else a failure.
func join(native, wasm Result) Result {
	r := wasm // its effects were seen from outside
	if native.Verdict == wasm.Verdict && native.Difference == wasm.Difference {
		return r
	}
	r.Verdict = Failed
	switch {
	case native.Verdict == Failed:
		r.Difference = "native: " + native.Difference
	case wasm.Verdict == Failed:
		r.Difference = "wasm: " + wasm.Difference
	default:
		r.Difference = fmt.Sprintf("native %s, wasm %s", native.Verdict, wasm.Verdict)
	}
	return r
}

// Count returns how many vectors have a verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, x := range r.Results {
		if x.Verdict == v {
			n++
		}
	}
	return n
}

// WriteText writes a line for each vector that did not pass, with its name and the
// first difference between tabs, and a last line with the counts.
func (r *Report) WriteText(w io.Writer) error {
	for _, x := range r.Results {
		line := ""
		switch x.Verdict {
		case Failed:
			line = "FAIL\t" + x.Name + "\t" + visible(x.Difference)
		case Deviates:
			line = "deviates\t" + x.Name
		default:
			continue
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d passed, %d failed, %d deviates\n", r.Count(Passed), r.Count(Failed), r.Count(Deviates))
	return err
}

// WriteJSON writes the report as one document on one line.
func (r *Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(struct {
		Format   int      `json:"format"`
		Handlers Mode     `json:"handlers"`
		Passed   int      `json:"passed"`
		Failed   int      `json:"failed"`
		Deviates int      `json:"deviates"`
		Vectors  []Result `json:"vectors"`
	}{1, r.Handlers, r.Count(Passed), r.Count(Failed), r.Count(Deviates), r.Results})
}

// visible returns a text of a vector or guest as one line that hides nothing.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if abi.Hidden(r) || strings.ContainsRune("\t\n\u2028\u2029", r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
