package mcp

import (
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// format writes the blocks of a result as one text, as ADK does: text stays as it
// is, other blocks become a label and, where they hold readable text, that text.
// A line break stands beside blocks that are not text.
func format(blocks []sdk.Content) string {
	var out strings.Builder
	var last byte
	plain := true // the block before was text
	for _, b := range blocks {
		text, isText := formatBlock(b)
		if text == "" {
			continue
		}
		if out.Len() > 0 && !(plain && isText) && last != '\n' && text[0] != '\n' {
			out.WriteByte('\n')
		}
		out.WriteString(text)
		last, plain = text[len(text)-1], isText
	}
	return out.String()
}

// formatBlock returns a block as text, and whether it is plain text.
func formatBlock(b sdk.Content) (string, bool) {
	switch b := b.(type) {
	case nil:
		return "[MCP content: unavailable]", false
	case *sdk.TextContent:
		if b == nil {
			return "[MCP text content: unavailable]", false
		}
		return b.Text, true
	case *sdk.ImageContent:
		if b == nil {
			return "[MCP image: unavailable]", false
		}
		return newLabel("image").quoted("mimeType", b.MIMEType).size(int64(len(b.Data))).String(), false
	case *sdk.AudioContent:
		if b == nil {
			return "[MCP audio: unavailable]", false
		}
		return newLabel("audio").quoted("mimeType", b.MIMEType).size(int64(len(b.Data))).String(), false
	case *sdk.ResourceLink:
		if b == nil {
			return "[MCP resource link: unavailable]", false
		}
		l := newLabel("resource link").quoted("uri", b.URI).quoted("mimeType", b.MIMEType).quoted("name", b.Name).
			quoted("title", b.Title).quoted("description", b.Description)
		if b.Size != nil {
			l = l.size(*b.Size)
		}
		return l.String(), false
	case *sdk.EmbeddedResource:
		if b == nil || b.Resource == nil {
			return "[MCP embedded resource: unavailable]", false
		}
		return formatResource(b.Resource), false
	}
	return "[MCP content: unsupported]", false
}

func formatResource(r *sdk.ResourceContents) string {
	l := newLabel("embedded resource").quoted("uri", r.URI).quoted("mimeType", r.MIMEType)
	switch {
	case r.Text != "":
		if len(r.Blob) > 0 {
			l = l.size(int64(len(r.Blob)))
		}
		return l.String() + "\n" + r.Text
	case len(r.Blob) > 0 && readable(r.MIMEType, r.Blob):
		return l.String() + "\n" + string(r.Blob)
	}
	return l.size(int64(len(r.Blob))).String()
}

// readable reports whether bytes of a media type are text that can be shown.
func readable(mediaType string, data []byte) bool {
	kind, params, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return false
	}
	switch {
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "+json"), strings.HasSuffix(kind, "+xml"):
	default:
		switch kind {
		case "application/json", "application/javascript", "application/toml", "application/x-www-form-urlencoded",
			"application/xml", "application/x-yaml", "application/yaml":
		default:
			return false
		}
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8":
		return utf8.Valid(data)
	case "us-ascii", "ascii":
		for _, c := range data {
			if c >= utf8.RuneSelf {
				return false
			}
		}
		return true
	}
	return false
}

// A label stands for a block that is not text.
type label struct {
	kind  string
	attrs []string
}

func newLabel(kind string) label { return label{kind: kind} }

func (l label) quoted(name, value string) label {
	if value != "" {
		l.attrs = append(l.attrs, fmt.Sprintf("%s=%q", name, value))
	}
	return l
}

func (l label) size(n int64) label {
	l.attrs = append(l.attrs, fmt.Sprintf("size=%d bytes", n))
	return l
}

// String returns the label.
func (l label) String() string {
	if len(l.attrs) == 0 {
		return "[MCP " + l.kind + "]"
	}
	return "[MCP " + l.kind + ": " + strings.Join(l.attrs, ", ") + "]"
}
