package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Recorder is a way to the network that remembers what was answered, for
// [Cassettes]. It is safe for concurrent use.
type Recorder struct {
	wire
	secrets *Secrets

	mu    sync.Mutex
	taken []*taken
}

// A taken is an exchange that was, in its order.
type taken struct {
	hop      *hop
	address  netip.Addr
	response *http.Response
	body     bytes.Buffer // as far as it was read
}

// NewRecorder makes a recorder. Values of the secrets, which may be nil, are
// recorded as their names.
func NewRecorder(secrets *Secrets) *Recorder { return &Recorder{wire: newNetwork(), secrets: secrets} }

// Egress returns the egress whose exchanges are recorded.
func (r *Recorder) Egress() *Egress { return &Egress{wire: r} }

func (r *Recorder) send(ctx context.Context, h *hop, addrs []netip.Addr) (*http.Response, error) {
	response, err := r.wire.send(ctx, h, addrs)
	if err != nil {
		return nil, err
	}
	t := &taken{hop: h, address: addrs[0], response: response}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(response.Body, &t.body), response.Body}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = append(r.taken, t)
	return response, nil
}

// leftOut are headers of answers that mean nothing to who replays them, or that nobody
// should find in a file.
var leftOut = []string{"Connection", "Content-Length", "Date", "Set-Cookie"}

// Cassette returns the file that holds all exchanges so far, nil if there was none. No
// request may be under way. Of requests their method, URL and digest of the body are
// recorded, and the address that their host had.
func (r *Recorder) Cassette() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type request struct {
		Method     string `json:"method"`
		URL        string `json:"url"`
		Address    string `json:"address"`
		BodySHA256 string `json:"body_sha256,omitempty"`
	}
	type response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers,omitempty"`
		JSON    json.RawMessage   `json:"json,omitempty"`
		Text    *string           `json:"text,omitempty"`
		Base64  []byte            `json:"base64,omitempty"`
	}
	type exchange struct {
		Request  request  `json:"request"`
		Response response `json:"response"`
	}
	document := struct {
		Format    int        `json:"format"`
		Exchanges []exchange `json:"exchanges"`
	}{Format: 1}
	clean := func(s string) string {
		s, _ = r.secrets.scrub(s)
		return s
	}
	for _, t := range r.taken {
		x := exchange{request{Method: t.hop.method, URL: t.hop.url.String(), Address: t.address.String()}, response{Status: t.response.StatusCode}}
		if len(t.hop.body) > 0 {
			sum := sha256.Sum256(t.hop.body)
			x.Request.BodySHA256 = hex.EncodeToString(sum[:])
		}
		for _, name := range slices.Sorted(maps.Keys(t.response.Header)) {
			if slices.Contains(leftOut, name) {
				continue
			}
			if x.Response.Headers == nil {
				x.Response.Headers = map[string]string{}
			}
			x.Response.Headers[strings.ToLower(name)] = clean(strings.Join(t.response.Header[name], ", "))
		}
		switch text := clean(t.body.String()); {
		case text == "":
		case !utf8.ValidString(text):
			x.Response.Base64 = []byte(text)
		default:
			if canonical, err := abi.Canonical([]byte(text)); err == nil && string(canonical) == text {
				x.Response.JSON = json.RawMessage(text) // byte for byte what it is
			} else {
				x.Response.Text = &text
			}
		}
		document.Exchanges = append(document.Exchanges, x)
	}
	if document.Exchanges == nil {
		return nil, nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(document)
	return out.Bytes(), err
}
