package mcp

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// What has no structured content passes as it came, byte for byte; what has some is
// rewritten wherever the protocol allows it to stand.
func TestExactBody(t *testing.T) {
	const (
		given = `{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"n":1.10,"s":"a\nb"}}}`
		exact = `{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":"{\"n\":1.10,\"s\":\"a\\nb\"}"}}`
		other = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"structuredContent":1.10}}`
		fails = `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"structuredContent"}}`
		empty = `{"jsonrpc":"2.0","id":3,"result":{"structuredContent":null,"x":1.10}}`
	)
	folded := strings.Replace(given, `"result":`, "\"result\":\r\ndata:   ", 1)
	for _, c := range []struct{ name, kind, body, want string }{
		{"whole", "application/json", given, exact},
		{"with a charset", "Application/JSON; charset=utf-8", given, exact},
		{"another type", "text/plain", given, given},
		{"no message", "application/json", `{"structuredContent":1.10}`, `{"structuredContent":1.10}`},
		{"cut off", "application/json", given[:80], given[:80]},
		{"an error", "application/json", fails, fails},
		{"null", "application/json", empty, empty},
		{"an event", "text/event-stream", "event: message\nid: 7\ndata: " + given + "\n\n", "event: message\nid: 7\ndata: " + exact + "\n\n"},
		{"without a blank", "text/event-stream", "data:" + given + "\n\n", "data: " + exact + "\n\n"},
		{"on several lines", "text/event-stream", "data: " + folded + "\r\nid: 7\r\n\r\n", "id: 7\ndata: " + exact + "\n\n"},
		{"without an end", "text/event-stream", "data: " + given, "data: " + exact + "\n\n"},
		{"other events", "text/event-stream", ": hello\r\n\r\nretry: 5\n\ndata: " + other + "\n\ndata: " + fails + "\n\ndata: " + given + "\n\n",
			": hello\r\n\r\nretry: 5\n\ndata: " + other + "\n\ndata: " + fails + "\n\ndata: " + exact + "\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, in := range map[string]io.Reader{"at once": strings.NewReader(c.body), "in bytes": iotest.OneByteReader(strings.NewReader(c.body))} {
				resp := &http.Response{Header: http.Header{"Content-Type": {c.kind}}, Body: io.NopCloser(in)}
				exactly(resp)
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != c.want {
					t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
				}
			}
		})
	}
}

// An event is there as soon as it is whole, and a failure comes after what was read.
func TestExactBodyWaitsForNoMore(t *testing.T) {
	in, out := io.Pipe()
	resp := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in}
	exactly(resp)
	const event = "data: {}\n\n"
	go func() { // ends when the reader has what was written
		_, _ = io.WriteString(out, event)
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
	}()
	buf := make([]byte, len(event))
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != event {
		t.Errorf("%q, %v", buf, err)
	}
	if n, err := resp.Body.Read(buf); n != 0 || err != io.ErrUnexpectedEOF {
		t.Errorf("%d bytes, %v", n, err)
	}
}
