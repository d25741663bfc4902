package gemini

import (
	"net"
	"net/http"
	"time"
)

const maxReplyBytes = 64 << 20 // of one HTTP reply, unpacked

// newHTTPClient returns a client that uses no proxy and follows no redirect: it
// would take the key along. Replies beyond maxReply bytes fail to read.
func newHTTPClient(maxReply int64) *http.Client {
	return &http.Client{
		Transport: bounded{
			base: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
				ForceAttemptHTTP2:   true,
				MaxIdleConnsPerHost: 16,
				IdleConnTimeout:     90 * time.Second,
				TLSHandshakeTimeout: 10 * time.Second,
			},
			maxReply: maxReply,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded fails the reading of a body past maxReply bytes with [*http.MaxBytesError],
// and keeps the digits of the numbers in it.
type bounded struct {
	base     *http.Transport
	maxReply int64
}

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	reply, err := b.base.RoundTrip(req)
	if err == nil {
		reply.Body = http.MaxBytesReader(nil, reply.Body, b.maxReply)
		if reply.StatusCode == http.StatusOK {
			reply.Body = newExactBody(reply, req.URL.Query().Get("alt") == "sse")
		}
	}
	return reply, err
}
