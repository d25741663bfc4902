package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/mcp"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// allTools stands for every tool of a server.
const allTools = "*"

// MCP is a server of the app that speaks the Model Context Protocol. Its tools are
// called like any other, past hooks, guards and the audit log; the server itself
// is no guest and has no grants.
type MCP struct {
	Name    string           `yaml:"name" required:"true" doc:"its name in the app"`
	Command []string         `yaml:"command,omitempty" doc:"a program and its arguments, run in the app's folder, outside any sandbox; it speaks on its standard streams"`
	Env     map[string]Value `yaml:"env,omitempty" doc:"command: its variables: texts, {env: VARIABLE} or {file: NAME}"`
	Inherit []string         `yaml:"inherit,omitempty" doc:"command: names of variables that it gets as they are, if they are set; no other is passed on"`
	URL     string           `yaml:"url,omitempty" doc:"instead of command: the address of a server that speaks streamable HTTP; no proxy is used and no redirect followed"`
	Headers map[string]Value `yaml:"headers,omitempty" doc:"url: sent with every request: texts, {env: VARIABLE} or {file: NAME}"`
	Tools   []string         `yaml:"tools" required:"true" doc:"names of the tools that are offered; [\"*\"]: all that the server lists"`
	Confirm []string         `yaml:"confirm,omitempty" doc:"names of tools before whose calls a person is asked; [\"*\"]: all; guards may ask about the others"`
}

// maxSecret bounds the file of a value.
const maxSecret = 64 << 10

// checkMCP finds mistakes, and returns the names of the servers.
func (f *File) checkMCP(add func(path, hint, format string, args ...any)) map[string]bool {
	servers := map[string]bool{}
	for i, m := range f.MCP {
		path := fmt.Sprintf("mcp[%d]", i)
		if err := abi.ValidName(m.Name); err != nil {
			add(path+".name", "", "%v", err)
		}
		if servers[m.Name] {
			add(path+".name", "", "%q is the name of two servers", m.Name)
		}
		servers[m.Name] = true
		switch {
		case (len(m.Command) == 0) == (m.URL == ""):
			add(path, "", "want one of command and url")
		case m.URL != "" && (m.Env != nil || m.Inherit != nil):
			add(path, "", "env and inherit have no meaning for a url")
		case m.URL == "" && m.Headers != nil:
			add(path+".headers", "", "has no meaning for a command")
		}
		if len(m.Command) > 0 && m.Command[0] == "" {
			add(path+".command[0]", "", "empty")
		}
		if u, err := url.Parse(m.URL); m.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil) {
			add(path+".url", "such as https://mcp.example/mcp; credentials go into headers", "want an http or https address without a user")
		}
		for j, name := range m.Confirm {
			if !offers(m.Tools, name) && name != allTools {
				add(fmt.Sprintf("%s.confirm[%d]", path, j), "add it to tools", "%q is not offered", name)
			}
		}
	}
	return servers
}

// offers reports whether a list of tools has a name.
func offers(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, allTools)
}

// Where says how a server is reached, for people.
func (m MCP) Where() string {
	if m.URL != "" {
		return m.URL
	}
	return strings.Join(m.Command, " ")
}

// server opens an MCP server. It is not reached before a run lists its tools.
func (rt *Runtime) server(i int, m MCP, o Options) (flow.Toolset, error) {
	path := fmt.Sprintf("mcp[%d]", i)
	cfg := mcp.Config{Logger: o.Logger}
	if len(m.Confirm) > 0 {
		cfg.ConfirmIf = func(tool string, _ map[string]any) bool { return offers(m.Confirm, tool) }
	}
	var transport mcp.Transport
	if m.URL != "" {
		headers := http.Header{}
		for name, v := range m.Headers {
			text, err := rt.secret(path+".headers."+name, v, o)
			if err != nil {
				return nil, err
			}
			headers.Set(name, text)
		}
		direct := http.DefaultTransport.(*http.Transport).Clone()
		direct.Proxy = nil
		client := &http.Client{Transport: withHeaders{direct, headers}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		transport = mcp.HTTP(m.URL, client)
		rt.closers = append(rt.closers, closeFunc(direct.CloseIdleConnections))
	} else {
		c := mcp.Command{Path: m.Command[0], Args: m.Command[1:], Dir: rt.File.dir}
		for _, name := range m.Inherit {
			if text := o.getenv(name); text != "" {
				c.Env = append(c.Env, name+"="+text)
			}
		}
		for name, v := range m.Env {
			text, err := rt.secret(path+".env."+name, v, o)
			if err != nil {
				return nil, err
			}
			c.Env = append(c.Env, name+"="+text)
		}
		if o.Logger != nil {
			c.Stderr = &serverLog{name: m.Name, logger: o.Logger}
		}
		transport = mcp.Stdio(c)
	}
	set := mcp.New(m.Name, transport, cfg)
	rt.closers = append(rt.closers, set)
	return flow.FilterToolset(set, func(s *flow.Spec) bool { return offers(m.Tools, s.Name) }), nil
}

// secret returns the text of a value.
func (rt *Runtime) secret(path string, v Value, o Options) (string, error) {
	switch {
	case v.Env != "":
		text := o.getenv(v.Env)
		if text == "" {
			return "", bad(abi.ConfigInvalid, "export "+v.Env+"=…", "%s: variable %s is not set", rt.File.at(path), v.Env)
		}
		return text, nil
	case v.File != "":
		data, err := os.ReadFile(rt.File.path(v.File))
		if err == nil && len(data) > maxSecret {
			err = fmt.Errorf("%s: %d bytes exceed %d", v.File, len(data), maxSecret)
		}
		if err != nil {
			return "", bad(abi.ConfigInvalid, "", "%s: %v", rt.File.at(path), err)
		}
		return strings.TrimRight(string(data), "\r\n"), nil
	}
	return v.Text, nil
}

func (o Options) getenv(name string) string {
	if o.Getenv == nil {
		return ""
	}
	return o.Getenv(name)
}

type closeFunc func()

// Close implements [io.Closer].
func (f closeFunc) Close() error {
	f()
	return nil
}

// withHeaders adds headers to every request.
type withHeaders struct {
	next    http.RoundTripper
	headers http.Header
}

// RoundTrip implements [http.RoundTripper].
func (t withHeaders) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, values := range t.headers {
		req.Header[name] = values
	}
	return t.next.RoundTrip(req)
}

// A serverLog takes what a server writes to its standard error, line by line, into
// the operator's log. A line of more than 4 KiB is broken.
type serverLog struct {
	name   string
	logger *slog.Logger

	mu   sync.Mutex
	line []byte
}

// Write implements [io.Writer]. It never fails.
func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 4 << 10
	n := len(p)
	for len(p) > 0 {
		line, _, whole := bytes.Cut(p[:min(len(p), most-len(l.line))], []byte("\n"))
		l.line = append(l.line, line...)
		if p = p[len(line):]; whole {
			p = p[1:]
		}
		if whole || len(l.line) == most {
			l.logger.Info("mcp server", "server", l.name, "line", string(l.line))
			l.line = l.line[:0]
		}
	}
	return n, nil
}
