package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Cassettes hold recorded HTTP exchanges and answer from them in place of the
// network. They are safe for concurrent use.
//
// A file is a JSON document:
//
//	{"format": 1, "exchanges": [
//	  {"request":  {"method": "GET", "url": "https://api.example.com/v1?q=Oslo", "address": "93.184.216.34"},
//	   "response": {"status": 200, "headers": {"content-type": "application/json"}, "delay_ms": 5, "json": {"ok": true}}}]}
//
// A request is matched by method, URL and body. "method" is GET if absent;
// "body_sha256" is the lower-case hexadecimal digest of the body, and an exchange
// without it matches any body. "address" is what the host resolves to, so that
// the rules about addresses have something to judge; absent, it is a public one.
// The body of an answer is one of "json", "text" and "base64". Exchanges that
// match the same request answer in their order, and the last one goes on
// answering.
type Cassettes struct {
	exchanges []*exchange

	mu     sync.Mutex
	played map[*exchange]bool
}

type exchange struct {
	Request struct {
		Method     string `json:"method"`
		URL        string `json:"url"`
		Address    string `json:"address"`
		BodySHA256 string `json:"body_sha256"`
	} `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		DelayMS int64             `json:"delay_ms"`
		JSON    json.RawMessage   `json:"json"`
		Text    *string           `json:"text"`
		Base64  *string           `json:"base64"`
	} `json:"response"`

	address netip.Addr
	body    []byte
}

const (
	maxCassetteBytes = 64 << 20 // one file
	maxDelay         = time.Minute
)

// publicAddress is what a host resolves to that an exchange gives no address.
var publicAddress = netip.AddrFrom4([4]byte{93, 184, 216, 34})

// OpenCassettes reads one file, or every file of a directory whose name ends in
// ".json", in the order of their names. Unknown members and exchanges that could
// never be matched are errors.
func OpenCassettes(path string) (*Cassettes, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cassette: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(escapeGlob(path), "*.json")); err != nil {
			return nil, fmt.Errorf("cassette %s: %w", path, err)
		}
	}
	c := &Cassettes{played: map[*exchange]bool{}}
	for _, name := range files {
		if err := c.open(name); err != nil {
			return nil, fmt.Errorf("cassette %s: %w", name, err)
		}
	}
	return c, nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (c *Cassettes) open(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxCassetteBytes+1))
	if err != nil {
		return err
	}
	if len(data) > maxCassetteBytes {
		return fmt.Errorf("file exceeds %d bytes", maxCassetteBytes)
	}
	return c.parse(data)
}

func (c *Cassettes) parse(data []byte) error {
	var document struct {
		Format    int         `json:"format"`
		Exchanges []*exchange `json:"exchanges"`
	}
	if err := abi.Decode(data, &document); err != nil {
		return err
	}
	if document.Format != 1 {
		return fmt.Errorf("format %d: want 1", document.Format)
	}
	for i, x := range document.Exchanges {
		if x == nil {
			return fmt.Errorf("exchanges[%d]: is null", i)
		}
		if err := x.prepare(); err != nil {
			return fmt.Errorf("exchanges[%d]: %w", i, err)
		}
	}
	c.exchanges = append(c.exchanges, document.Exchanges...)
	return nil
}

// prepare checks an exchange and decodes its parts.
func (x *exchange) prepare() error {
	r := &x.Request
	if r.Method = strings.ToUpper(r.Method); r.Method == "" {
		r.Method = http.MethodGet
	}
	u, err := parseURL(r.URL)
	if err != nil {
		return err
	}
	r.URL = u.String()
	x.address = publicAddress
	if literal, err := netip.ParseAddr(u.Hostname()); err == nil {
		x.address = literal
	}
	if r.Address != "" {
		if x.address, err = netip.ParseAddr(r.Address); err != nil {
			return fmt.Errorf("address %q is not an address", r.Address)
		}
	}
	if digest, err := hex.DecodeString(r.BodySHA256); err != nil || len(digest) != 0 && len(digest) != sha256.Size ||
		r.BodySHA256 != strings.ToLower(r.BodySHA256) {
		return fmt.Errorf("body_sha256 %q is not 64 lower-case hexadecimal digits", r.BodySHA256)
	}
	a := &x.Response
	if a.Status < 100 || a.Status > 599 {
		return fmt.Errorf("status %d: want 100 to 599", a.Status)
	}
	if a.DelayMS < 0 || a.DelayMS > maxDelay.Milliseconds() {
		return fmt.Errorf("delay_ms %d: want 0 to %d", a.DelayMS, maxDelay.Milliseconds())
	}
	bodies := 0
	if a.JSON != nil {
		x.body = a.JSON
		bodies++
	}
	if a.Text != nil {
		x.body = []byte(*a.Text)
		bodies++
	}
	if a.Base64 != nil {
		if x.body, err = base64.StdEncoding.DecodeString(*a.Base64); err != nil {
			return errors.New("base64 cannot be decoded")
		}
		bodies++
	}
	if bodies > 1 {
		return errors.New("response has more than one of json, text and base64")
	}
	return nil
}

func (c *Cassettes) recorded() bool { return true }

func (c *Cassettes) resolve(_ context.Context, h *hop) ([]netip.Addr, error) {
	x := c.match(h, false)
	if x == nil {
		return nil, errNotRecorded
	}
	return []netip.Addr{x.address}, nil
}

func (c *Cassettes) send(ctx context.Context, h *hop, _ []netip.Addr) (*http.Response, error) {
	x := c.match(h, true)
	if x == nil {
		return nil, errNotRecorded
	}
	if x.Response.DelayMS > 0 {
		timer := time.NewTimer(time.Duration(x.Response.DelayMS) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	header := http.Header{}
	for name, value := range x.Response.Headers {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: x.Response.Status, Header: header, Body: io.NopCloser(bytes.NewReader(x.body))}, nil
}

// match returns the exchange that answers a request: the first that has not been
// played, else the last. With play, it has been now.
func (c *Cassettes) match(h *hop, play bool) *exchange {
	url, sum := h.url.String(), sha256.Sum256(h.body)
	digest := hex.EncodeToString(sum[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	var last *exchange
	for _, x := range c.exchanges {
		if x.Request.Method != h.method || x.Request.URL != url || x.Request.BodySHA256 != "" && x.Request.BodySHA256 != digest {
			continue
		}
		if last = x; !c.played[x] {
			break
		}
	}
	if play && last != nil {
		c.played[last] = true
	}
	return last
}

// Unplayed returns the requests that were never answered, such as "GET
// https://api.example.com/v1", in their order.
func (c *Cassettes) Unplayed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []string
	for _, x := range c.exchanges {
		if !c.played[x] {
			left = append(left, x.Request.Method+" "+x.Request.URL)
		}
	}
	return left
}
