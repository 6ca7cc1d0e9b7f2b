package transfer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// lookupPatience is how long the host of a receiver's address may take to be resolved.
const lookupPatience = 5 * time.Second

// addressCharsMax bounds a receiver's address.
const addressCharsMax = 512

// lookup asks the system's resolver.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// announced checks the address at which a receiver says that it passes versions on, and returns the host
// and port that others connect to. Others send requests there, so it must be the receiver's own: the
// address that its connection comes from. Without an address there is nothing to check.
func (c *Coordinator) announced(ctx context.Context, name string, req *protocol.ReceiverRequest) (dial string, err error) {
	if req.Address == "" {
		return "", nil
	}
	if dial, known := c.known(name, req); known {
		return dial, nil
	}
	bad := func(format string, args ...any) (string, error) {
		return "", protocol.Refuse(protocol.CodeInvalid, "receiver %s announces %.200q: "+format, append([]any{name, req.Address}, args...)...)
	}
	u, err := url.Parse(req.Address)
	switch {
	case len(req.Address) > addressCharsMax || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("want an address such as https://node3:7071")
	case u.Path != c.opt.Origin:
		return bad("its path is %.100q, want %s", u.Path, c.opt.Origin)
	case len(req.Secret) < secretCharsMin || len(req.Secret) > secretCharsMax:
		return bad("its secret has %d characters, want from %d to %d random ones", len(req.Secret), secretCharsMin, secretCharsMax)
	}
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil || port == 0 {
		return bad("its port is %q, want one from 1 to 65535", u.Port())
	}
	found, err := c.resolve(ctx, u.Hostname())
	if unknown, is := errors.AsType[*net.DNSError](err); err != nil && !(is && unknown.IsNotFound) { // it may pass
		return "", protocol.Refuse(protocol.CodeUnavailable, "receiver %s announces %.200q: its host cannot be resolved now: %v", name, req.Address, err)
	}
	if err != nil {
		return bad("its host cannot be resolved: %v", err)
	}
	peer := req.Caller.Peer.Unmap()
	i := slices.IndexFunc(found, func(ip netip.Addr) bool { return ownAddress(ip, peer) })
	if i < 0 {
		return bad("that is at %v, and the receiver calls from %v: others may only be sent to the address that it calls from. Name that one with --address, or leave --listen out", found, peer)
	}
	if u.Scheme == "http" && !found[i].IsLoopback() {
		return bad("weights and keys would travel in clear: serve by TLS (--tls-cert, --tls-key) at an address that begins with https")
	}
	return netip.AddrPortFrom(found[i], uint16(port)).String(), nil
}

// known is where others connect to, if a receiver says what it said before.
func (c *Coordinator) known(name string, req *protocol.ReceiverRequest) (dial string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.all[name]
	if r == nil || r.instance != req.Instance || r.address != req.Address || r.secret != req.Secret || r.peer != req.Caller.Peer {
		return "", false
	}
	return r.dial, true
}

// resolve returns the addresses of a host, which may be one already.
func (c *Coordinator) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	found, err := c.opt.Lookup(ctx, strings.TrimSuffix(host, "."))
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, err
}

// ownAddress reports whether an address is the one that a peer calls from. A peer on loopback is on this
// machine, and may name any address of it.
func ownAddress(ip, peer netip.Addr) bool {
	switch {
	case !peer.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast():
		return false
	case peer.IsLoopback():
		return ip.IsLoopback() || OfThisMachine(ip)
	}
	return ip == peer && !ip.IsLoopback()
}

// OfThisMachine reports whether an interface of this machine has an address.
func OfThisMachine(ip netip.Addr) bool {
	there, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(there, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip.Unmap()
	})
}

// portOf is the port of a URL, its scheme's where it names none.
func portOf(u *url.URL) string {
	if u.Port() == "" {
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Port()
}
