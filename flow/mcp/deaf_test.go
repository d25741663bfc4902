package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxd/sandboxd/flow/mcp"
)

// A server that stops reading cannot keep a call beyond its context.
func TestDeafServer(t *testing.T) {
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer cancel() // nothing is read from here on
		lines := bufio.NewReader(there)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var req struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if err := json.Unmarshal(line, &req); err != nil {
				return
			}
			switch {
			case req.Method == "initialize":
				_, _ = fmt.Fprintf(there, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"1"}}}`+"\n", req.ID)
			case req.Method == "tools/list":
				_, _ = fmt.Fprintf(there, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}`+"\n", req.ID)
				_, _ = there.Read(make([]byte, 1)) // the call is being written
				return
			case len(req.ID) > 0:
				_, _ = fmt.Fprintf(there, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", req.ID)
			}
		}
	}()
	set := mcp.New("test", mcp.Stream(here), mcp.Config{})
	_, _ = talk{set: set, ctx: ctx}.do(t, echo("hi")) // must return
	<-served
	_ = set.Close() // must return
}

// Nor can one that answers no request.
func TestSilentServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return newServer(nil) }, nil)
	release := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			cancel()
			<-release
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(release) })
	_, _ = talk{set: open(t, mcp.HTTP(web.URL, nil), mcp.Config{}), ctx: ctx}.do(t, echo("hi")) // must return
}
