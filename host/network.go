package host

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
)

// network is the wire to the real network.
type network struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	tls    *tls.Config // nil: the system's roots
}

func newNetwork() *network {
	return &network{
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		dial: (&net.Dialer{}).DialContext,
	}
}

func (n *network) recorded() bool { return false }

func (n *network) resolve(ctx context.Context, h *hop) ([]netip.Addr, error) {
	host := h.url.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	return n.lookup(ctx, host)
}

// send sends one request over a connection of its own, which ends with the body.
func (n *network) send(ctx context.Context, h *hop, addrs []netip.Addr) (*http.Response, error) {
	transport := &http.Transport{
		// No Proxy: variables of the process are not the guest's way out.
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			var errs []error
			for _, addr := range addrs {
				conn, err := n.dial(ctx, network, net.JoinHostPort(addr.String(), port))
				if err == nil {
					return conn, nil
				}
				errs = append(errs, err)
			}
			return nil, errors.Join(errs...)
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		TLSClientConfig:        n.tls.Clone(),
	}
	request, err := h.request(ctx)
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(request)
}

// request returns the request that a hop is.
func (h *hop) request(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	if len(h.body) > 0 {
		body = bytes.NewReader(h.body)
	}
	request, err := http.NewRequestWithContext(ctx, h.method, h.url.String(), body)
	if err != nil {
		return nil, err
	}
	request.Header = h.header.Clone()
	return request, nil
}
