package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxMessage = sdk.DefaultMaxLineLength // bytes of one message of a server: 16 MiB
	patience   = 2 * time.Second          // for a process to end, or a message to be read whose context ended
	stall      = 10 * time.Second         // for a message to be read
)

// A Transport is a way to reach a server. [Stdio], [HTTP] and [Stream] make one;
// the zero value is none.
type Transport struct {
	open  func() sdk.Transport
	close func() // frees what outlives a connection; may be nil
}

// A Command is a server that is run as a process. It is no sandbox: the process
// may do whatever this one may.
type Command struct {
	Path   string    // as in [exec.Command]
	Args   []string  // without the name of the command
	Env    []string  // all of its environment, as KEY=value; nothing is inherited
	Dir    string    // where it runs; empty: where this process does
	Stderr io.Writer // takes its standard error; nil: nothing does
}

// Stdio returns a transport that starts a process for each connection and speaks
// with it on its standard input and output. When the connection is closed its
// input ends; it has two seconds to exit, and two more after SIGTERM, before it
// is killed.
func Stdio(c Command) Transport {
	args, env := append([]string{}, c.Args...), append([]string{}, c.Env...)
	return Transport{open: func() sdk.Transport {
		cmd := exec.Command(c.Path, args...)
		cmd.Env, cmd.Dir, cmd.Stderr = env, c.Dir, c.Stderr
		cmd.WaitDelay = patience // a child of the child may hold its standard error
		return hurried{&sdk.CommandTransport{Command: cmd, TerminateDuration: patience}}
	}}
}

// HTTP returns a transport that speaks streamable HTTP with an endpoint. The
// client decides about addresses, proxies, redirects and credentials, and stays
// the caller's; nil is one that uses no proxy and follows no redirect.
func HTTP(url string, client *http.Client) Transport {
	var t Transport
	if client == nil {
		direct := http.DefaultTransport.(*http.Transport).Clone()
		direct.Proxy = nil
		client = &http.Client{Transport: direct, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		t.close = client.CloseIdleConnections
	}
	own := *client
	if own.Transport == nil {
		own.Transport = http.DefaultTransport
	}
	own.Transport = bounded{own.Transport}
	t.open = func() sdk.Transport {
		// The bodies are bounded, and with them the events.
		return &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &own, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: -1}
	}
	return t
}

// Stream returns a transport that speaks newline-delimited JSON over a stream,
// which it closes with the connection. There is only one connection.
func Stream(rw io.ReadWriteCloser) Transport {
	t := hurried{&sdk.IOTransport{Reader: rw, Writer: rw, MaxLineLength: maxMessage}}
	return Transport{open: func() sdk.Transport { return t }}
}

// hurried closes a connection whose server does not read: the SDK writes until it
// can, whatever becomes of the context. And it keeps the digits of what is read.
type hurried struct{ sdk.Transport }

// Connect implements [sdk.Transport].
func (h hurried) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := h.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hurriedConnection{c}, nil
}

type hurriedConnection struct{ sdk.Connection }

// Read implements [sdk.Connection].
func (c hurriedConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err == nil {
		exactMessage(m)
	}
	return m, err
}

// Write implements [sdk.Connection].
func (c hurriedConnection) Write(ctx context.Context, m jsonrpc.Message) error {
	written := make(chan struct{})
	defer close(written)
	go func() { // ends with the write, or when it has closed the connection
		late := time.NewTimer(stall)
		defer late.Stop()
		select {
		case <-ctx.Done():
			late.Reset(patience)
			select {
			case <-written:
				return
			case <-late.C:
			}
		case <-written:
			return
		case <-late.C:
		}
		_ = c.Close() // the write returns an error
	}()
	return c.Connection.Write(ctx, m)
}

// bounded bounds the bodies of answers, which the SDK reads whole, and keeps the
// digits in them.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, maxMessage}
		exactly(resp)
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("answer of the MCP server: more than %d bytes", maxMessage)
	}
	return n, err
}
