package mcp

import (
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestFormat(t *testing.T) {
	size := int64(9)
	text := func(s string) sdk.Content { return &sdk.TextContent{Text: s} }
	resource := func(r sdk.ResourceContents) sdk.Content { return &sdk.EmbeddedResource{Resource: &r} }
	image := &sdk.ImageContent{MIMEType: "image/png", Data: []byte("abc")}
	for _, c := range []struct {
		name   string
		blocks []sdk.Content
		want   string
	}{
		{"nothing", nil, ""},
		{"text", []sdk.Content{text("a "), text("b")}, "a b"},
		{"empty text between", []sdk.Content{image, text(""), text("b")}, "[MCP image: mimeType=\"image/png\", size=3 bytes]\nb"},
		{"image between", []sdk.Content{text("a"), image, text("b")}, "a\n[MCP image: mimeType=\"image/png\", size=3 bytes]\nb"},
		{"line breaks already there", []sdk.Content{text("a\n"), image, text("\nb")}, "a\n[MCP image: mimeType=\"image/png\", size=3 bytes]\nb"},
		{"audio without a type", []sdk.Content{&sdk.AudioContent{}}, "[MCP audio: size=0 bytes]"},
		{"link", []sdk.Content{&sdk.ResourceLink{URI: "file:///a", Name: "n", Title: `t"`, Description: "d", MIMEType: "text/plain", Size: &size}},
			`[MCP resource link: uri="file:///a", mimeType="text/plain", name="n", title="t\"", description="d", size=9 bytes]`},
		{"link with nothing", []sdk.Content{&sdk.ResourceLink{}}, "[MCP resource link]"},
		{"resource of text", []sdk.Content{resource(sdk.ResourceContents{URI: "u", Text: "body"})}, "[MCP embedded resource: uri=\"u\"]\nbody"},
		{"resource of text and bytes", []sdk.Content{resource(sdk.ResourceContents{URI: "u", Text: "body", Blob: []byte("xy")})},
			"[MCP embedded resource: uri=\"u\", size=2 bytes]\nbody"},
		{"resource of readable bytes", []sdk.Content{resource(sdk.ResourceContents{URI: "u", MIMEType: "application/problem+json; charset=UTF-8", Blob: []byte("{}")})},
			"[MCP embedded resource: uri=\"u\", mimeType=\"application/problem+json; charset=UTF-8\"]\n{}"},
		{"resource of bytes", []sdk.Content{resource(sdk.ResourceContents{URI: "u", Blob: []byte{0}})}, `[MCP embedded resource: uri="u", size=1 bytes]`},
		{"nil block", []sdk.Content{nil}, "[MCP content: unavailable]"},
		{"nil text", []sdk.Content{(*sdk.TextContent)(nil)}, "[MCP text content: unavailable]"},
		{"nil image", []sdk.Content{(*sdk.ImageContent)(nil)}, "[MCP image: unavailable]"},
		{"nil audio", []sdk.Content{(*sdk.AudioContent)(nil)}, "[MCP audio: unavailable]"},
		{"nil link", []sdk.Content{(*sdk.ResourceLink)(nil)}, "[MCP resource link: unavailable]"},
		{"nil resource", []sdk.Content{(*sdk.EmbeddedResource)(nil)}, "[MCP embedded resource: unavailable]"},
		{"resource of nothing", []sdk.Content{&sdk.EmbeddedResource{}}, "[MCP embedded resource: unavailable]"},
		{"unknown", []sdk.Content{struct{ sdk.Content }{}}, "[MCP content: unsupported]"},
	} {
		if got := format(c.blocks); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", c.name, got, c.want)
		}
	}
}

func TestReadable(t *testing.T) {
	for _, c := range []struct {
		mediaType, data string
		want            bool
	}{
		{"text/plain", "é", true},
		{"text/plain; charset=utf8", "é", true},
		{"text/plain; charset=ascii", "é", false},
		{"text/plain; charset=US-ASCII", "e", true},
		{"text/plain; charset=latin1", "e", false},
		{"text/plain", "\xff", false},
		{"image/svg+xml", "<svg/>", true},
		{"application/yaml", "a: b", true},
		{"application/octet-stream", "a", false},
		{"text/plain; charset", "a", false},
		{"", "a", false},
	} {
		if got := readable(c.mediaType, []byte(c.data)); got != c.want {
			t.Errorf("%q of %q: %v, want %v", c.data, c.mediaType, got, c.want)
		}
	}
}
