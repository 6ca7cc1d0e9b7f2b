package transfer

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// dialKey is the key of a context's address to connect to.
type dialKey struct{}

// dialing has the request of a context connect to an address, whatever its URL's host resolves to;
// empty for no other.
func dialing(ctx context.Context, address string) context.Context {
	if address == "" {
		return ctx
	}
	return context.WithValue(ctx, dialKey{}, address)
}

// NewClient returns a receiver's client: of the control plane, and of other receivers at the addresses
// that the control plane saw. Certificates are checked by config, nil for the system's. A valid from is
// the address of this machine to connect from, where that is possible. The control plane takes no
// announced address but the one that a receiver calls from.
func NewClient(config *tls.Config, from netip.Addr) *http.Client {
	plain := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	bound := *plain
	if from.IsValid() {
		bound.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.Context().Value(dialKey{}) != nil {
			return nil, nil
		}
		return http.ProxyFromEnvironment(r)
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if pinned, ok := ctx.Value(dialKey{}).(string); ok {
			return plain.DialContext(ctx, network, pinned)
		}
		connection, err := bound.DialContext(ctx, network, address)
		if err != nil && from.IsValid() && ctx.Err() == nil {
			return plain.DialContext(ctx, network, address)
		}
		return connection, err
	}
	return &http.Client{Transport: transport}
}

// defaultClient is what nil stands for.
var defaultClient = NewClient(nil, netip.Addr{})

// staying is a client, nil for the default one, that follows no redirect: that would take a token to an
// address that nobody has checked.
func staying(client *http.Client) *http.Client {
	if client == nil {
		client = defaultClient
	}
	stays := *client
	stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &stays
}

// authorize sends what bearer returns with a request; nil or "" is nothing.
func authorize(request *http.Request, bearer func() string) {
	if bearer == nil {
		return
	}
	if text := bearer(); text != "" {
		request.Header.Set("Authorization", "Bearer "+text)
	}
}
