package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// The protocol's SDK decodes structured content to float64, which does not keep
// every digit. So a message is rewritten before the SDK decodes it: the structured
// content of a result becomes a string that holds its JSON. A null stays, which
// means that there is none.

const structuredContent = "structuredContent"

// exactMessage rewrites the result that a message has, if it has one. It reports
// whether there was something to rewrite.
func exactMessage(m jsonrpc.Message) bool {
	resp, ok := m.(*jsonrpc.Response)
	if !ok {
		return false
	}
	var result map[string]json.RawMessage
	if json.Unmarshal(resp.Result, &result) != nil { // no object, or none at all
		return false
	}
	content, ok := result[structuredContent]
	if !ok || string(content) == "null" {
		return false
	}
	text, err := encode(string(content))
	if err != nil {
		return false
	}
	result[structuredContent] = text
	data, err := encode(result)
	if err != nil {
		return false
	}
	resp.Result = data
	return true
}

// encode returns v as JSON on one line, without escapes that HTML would need.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(buf.Bytes(), "\n"), err
}

// exactDocument is exactMessage for the JSON of a message. What is no message stays.
func exactDocument(doc []byte) []byte {
	m, err := jsonrpc.DecodeMessage(doc)
	if err != nil || !exactMessage(m) {
		return doc
	}
	out, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return doc
	}
	return out
}

// An exactBody rewrites the messages of an HTTP answer as it is read: event by
// event if it is a stream of them, else whole.
type exactBody struct {
	io.Closer
	in     *bufio.Reader
	events bool
	ready  []byte
	err    error
}

// exactly makes the body of an answer an exactBody, if it has messages.
func exactly(resp *http.Response) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/json" && kind != "text/event-stream" {
		return
	}
	resp.Body = &exactBody{Closer: resp.Body, in: bufio.NewReader(resp.Body), events: kind == "text/event-stream"}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// Read implements [io.Reader].
func (b *exactBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 && b.err == nil {
		if b.events {
			b.ready, b.err = b.event()
			continue
		}
		if b.ready, b.err = io.ReadAll(b.in); b.err == nil {
			b.ready, b.err = exactDocument(b.ready), io.EOF
		}
	}
	if len(b.ready) == 0 {
		return 0, b.err
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// event returns the next event, with the empty line that ends it. Data on several
// lines is one document, and is put on one line if it is rewritten.
func (b *exactBody) event() ([]byte, error) {
	var lines, others, data []byte
	for {
		line, err := b.in.ReadBytes('\n')
		text := bytes.TrimRight(line, "\r\n")
		lines = append(lines, line...)
		if part, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			data = append(append(data, bytes.TrimSpace(part)...), '\n')
		} else if len(text) > 0 {
			others = append(append(others, text...), '\n')
		}
		if len(text) > 0 && err == nil {
			continue
		}
		data = bytes.TrimSuffix(data, []byte("\n"))
		exact := exactDocument(data)
		if bytes.Equal(exact, data) {
			return lines, err
		}
		return append(append(append(others, "data: "...), exact...), "\n\n"...), err
	}
}
