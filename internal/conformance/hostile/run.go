package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Options say how cases are run.
type Options struct {
	// Child returns the command that calls [RunCase] with this case and then
	// [WriteResult] with this file. It is started by Run, with a standard input that
	// never answers.
	Child func(ctx context.Context, id, result string) *exec.Cmd
	// Only are the ids of cases to run; empty: all.
	Only []string
}

// A Result is how a case did.
type Result struct {
	ID         string `json:"id"`
	Group      string `json:"group"`
	Passed     bool   `json:"passed"`
	Difference string `json:"difference,omitempty"` // the first one
	TookMS     int64  `json:"took_ms"`              // of the child, its start included
}

// Where a listener waits for connections that no guest may make. The modules of
// the corpus know the address.
const listenAddress = "127.0.0.1:8080"

// Bounds of a child beyond what its case expects; past them it is ended.
const (
	graceTime   = 10 * time.Second
	graceMemory = 512 << 20
)

// Run runs cases of a corpus, one child process at a time so that times mean
// something. Lawful guards go before the others: a bad guard counts only if they
// pass. An error means that cases could not be run or that ctx ended; a case that
// fails is a result.
func Run(ctx context.Context, c Corpus, o Options) (*Report, error) {
	cases, err := c.Load()
	if err != nil {
		return nil, err
	}
	for _, id := range o.Only {
		if !slices.ContainsFunc(cases, func(k *Case) bool { return k.ID == id }) {
			return nil, fmt.Errorf("case %q: not in the corpus", id)
		}
	}
	slices.SortStableFunc(cases, func(a, b *Case) int { return rank(a) - rank(b) })
	dir, err := os.MkdirTemp("", "hostile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p := &parent{dir: dir, child: o.Child, grace: graceTime, memory: graceMemory}
	defer p.close()
	if err := p.listen(ctx); err != nil {
		return nil, err
	}
	r := &Report{}
	broken := "" // the first lawful guard that did not pass
	for _, k := range cases {
		if len(o.Only) > 0 && !slices.Contains(o.Only, k.ID) {
			continue
		}
		result := Result{ID: k.ID, Group: k.Group}
		start := time.Now()
		result.Difference = p.run(ctx, k)
		result.TookMS = time.Since(start).Milliseconds()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case !lawful(k) && k.Stage == StageGuard && broken != "" && result.Difference == "":
			result.Difference = "a lawful guard does not pass: " + broken
		case lawful(k) && result.Difference != "" && broken == "":
			broken = k.ID
		}
		result.Passed = result.Difference == ""
		r.Results = append(r.Results, result)
	}
	slices.SortStableFunc(r.Results, func(a, b Result) int { return strings.Compare(a.Group, b.Group) })
	return r, nil
}

// lawful reports whether a case is a guard that does nothing wrong.
func lawful(k *Case) bool {
	return k.Stage == StageGuard && !slices.Contains(k.Expect.Outcome, abi.PolicyUnavailable)
}

func rank(k *Case) int {
	if lawful(k) {
		return 0
	}
	return 1
}

// A parent watches children.
type parent struct {
	dir       string
	child     func(context.Context, string, string) *exec.Cmd
	grace     time.Duration // what a child may take beyond its case; likewise memory, in bytes
	memory    int64
	listeners []net.Listener
	proxy     string       // address of the proxy that must see nothing
	connected atomic.Int64 // connections to the address that guests try
	proxied   atomic.Int64 // connections to the proxy
	occupied  error        // why nobody listens at the address that guests try
	accepting sync.WaitGroup
}

func (p *parent) listen(ctx context.Context) error {
	var config net.ListenConfig
	proxy, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.proxy = proxy.Addr().String()
	p.count(proxy, &p.proxied)
	listener, err := config.Listen(ctx, "tcp", listenAddress)
	if err != nil {
		p.occupied = err
		return nil
	}
	p.count(listener, &p.connected)
	return nil
}

// count counts and closes what connects.
func (p *parent) count(l net.Listener, n *atomic.Int64) {
	p.listeners = append(p.listeners, l)
	p.accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			conn.Close()
		}
	})
}

func (p *parent) close() {
	for _, l := range p.listeners {
		l.Close()
	}
	p.accepting.Wait()
}

// A childResult is what a child says.
type childResult struct {
	Difference string `json:"difference"`
	Error      string `json:"error,omitempty"`
}

// WriteResult writes what [RunCase] returned, for the parent.
func WriteResult(file, difference string, err error) error {
	r := childResult{Difference: difference}
	if err != nil {
		r.Error = err.Error()
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// run runs one case in a child and returns the first difference.
func (p *parent) run(ctx context.Context, k *Case) string {
	p.connected.Store(0)
	p.proxied.Store(0)
	file := filepath.Join(p.dir, k.ID)
	cmd := p.child(ctx, k.ID, file)
	reader, writer, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	defer reader.Close()
	defer writer.Close()
	cmd.Stdin = reader
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "HOSTILE_SECRET=not for guests", "HTTP_PROXY=http://"+p.proxy, "http_proxy=http://"+p.proxy)
	cmd.WaitDelay = time.Second
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Sprintf("child: %v", err)
	}
	ended, err := p.watch(ctx, cmd, k)
	if ended != "" {
		return ended
	}
	if err != nil {
		return strings.TrimSuffix(fmt.Sprintf("the process died: %v: %s", err, out.first()), ": ")
	}
	data, err := os.ReadFile(file)
	var r childResult
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the process left no result: %v", err)
	case r.Error != "":
		return "not run: " + r.Error
	case r.Difference != "":
		return r.Difference
	}
	return p.outside(k, out)
}

// outside compares what only the parent sees.
func (p *parent) outside(k *Case, out *output) string {
	e := &k.Expect
	switch {
	case e.StdoutBytesMax != nil && out.written() > *e.StdoutBytesMax:
		return fmt.Sprintf("%d bytes reached the process's own output, at most %d", out.written(), *e.StdoutBytesMax)
	case e.ConnectionsMax != nil && p.occupied != nil:
		return fmt.Sprintf("connections cannot be counted: %v", p.occupied)
	case e.ConnectionsMax != nil && int(p.connected.Load()) > *e.ConnectionsMax:
		return fmt.Sprintf("%d connections, at most %d", p.connected.Load(), *e.ConnectionsMax)
	case p.proxied.Load() > 0:
		return fmt.Sprintf("%d connections to the proxy of the environment", p.proxied.Load())
	}
	return ""
}

// watch waits for the child, and ends it if it takes far more than its case allows.
func (p *parent) watch(ctx context.Context, cmd *exec.Cmd, k *Case) (ended string, err error) {
	n := int64(max(k.Repeat, 1) * max(len(k.Calls), 1) * max(len(k.Tenants), 1))
	if k.Stage == StageGuard {
		n = int64(2 * 3 * len(k.Expect.entrances()))
	}
	limit := ms(2*n*k.Expect.MaxWallMS) + p.grace
	most := k.Expect.MaxRSSMB<<20 + p.memory
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	kill := func(why string) (string, error) {
		killGroup(cmd)
		<-done
		return why, nil
	}
	for {
		select {
		case err := <-done:
			return "", err
		case <-late.C:
			return kill(fmt.Sprintf("ended after %v", limit))
		case <-ctx.Done():
			return kill("cancelled")
		case <-tick.C:
			if held := residentOf(cmd.Process.Pid); held > most {
				return kill(fmt.Sprintf("ended with %d MiB resident, at most %d for the case", held>>20, k.Expect.MaxRSSMB))
			}
		}
	}
}

// output counts what a child writes and keeps the beginning.
type output struct {
	mu   sync.Mutex
	n    int
	kept []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += len(b)
	const most = 4 << 10
	o.kept = append(o.kept, b[:min(len(b), most-len(o.kept))]...)
	return len(b), nil
}

func (o *output) written() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// first returns the first line that was written.
func (o *output) first() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	line, _, _ := bytes.Cut(bytes.TrimSpace(o.kept), []byte("\n"))
	return cut(string(line))
}
