package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/internal/connections"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/store/transfer"
)

// logTo writes lines to standard error.
func logTo(a *app.Process) func(format string, args ...any) {
	return func(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) }
}

// from is the address of this machine to call the control plane from: the one that others are sent to, where
// the machine has it. The control plane takes no other. The zero value leaves it to the system.
func (c *receiveCmd) from() netip.Addr {
	host, _, _ := net.SplitHostPort(c.Listen)
	if u, err := url.Parse(c.Address); c.Address != "" && err == nil {
		host = u.Hostname()
	}
	if u, err := url.Parse(c.URL); c.Listen == "" || err != nil || ownMachine(u.Hostname()) {
		return netip.Addr{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // without one the system chooses
	for _, ip := range found {
		if ip = ip.Unmap(); !ip.IsLoopback() && transfer.OfThisMachine(ip) {
			return ip
		}
	}
	return netip.Addr{}
}

// passOn serves what arrives to other receivers.
func (c *receiveCmd) passOn(a *app.Process, store *transfer.Store, agent *transfer.Agent, trust *tls.Config) (stop func(), err error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || c.Address == "" && (host == "" || net.ParseIP(host).IsUnspecified()) {
		return nil, failure.Usage("say how others reach it: --address https://HOST:PORT", "--listen %s is no address that other nodes can use", c.Listen)
	}
	certificate, err := c.certificate(a)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, failure.Usage("choose another port", "--listen %s: %w", c.Listen, err)
	}
	scheme := "http"
	if certificate != nil {
		scheme = "https"
	}
	if agent.Address = c.Address; agent.Address == "" {
		agent.Address = scheme + "://" + listener.Addr().String()
	}
	if err := c.checkAddress(agent.Address, scheme, certificate, trust); err != nil {
		listener.Close()
		return nil, err
	}
	agent.Address = strings.TrimSuffix(agent.Address, "/") + plane.TransferPrefix
	agent.Secret = rand.Text()
	store.Source = &transfer.Source{Limit: transfer.NewBucket(c.RateLimit), Secret: agent.Secret}
	bound := connections.New(0)
	server := &http.Server{Handler: bound.Handler(store.Source.Handler(plane.TransferPrefix)), TLSConfig: certificate, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true) // a stream a connection: HTTP/2 would divide and copy it once more
	go func() {
		if err := bound.Serve(server, listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(a.Stderr, "passing on: %v\n", err)
		}
	}()
	return func() { server.Close() }, nil
}

// certificate is the TLS of --listen; nil on loopback, where none is needed.
func (c *receiveCmd) certificate(a *app.Process) (*tls.Config, error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, failure.Usage("give both, or neither", "--tls-cert and --tls-key belong together")
	}
	if c.TLSCert != "" {
		config, err := api.LoadTLS(c.TLSCert, c.TLSKey, logTo(a))
		if err != nil {
			return nil, failure.Usage("", "%w", err)
		}
		return config, nil
	}
	if api.CheckListen(c.Listen, false) == nil {
		return nil, nil
	}
	return nil, failure.Usage("name --tls-cert and --tls-key, of the authority that --ca names, or listen on 127.0.0.1", "--listen %s would send weights in clear between machines: there is no certificate", c.Listen)
}

// checkAddress refuses an address whose scheme is not that of --listen, or which the certificate is not for.
func (c *receiveCmd) checkAddress(address, scheme string, certificate, trust *tls.Config) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != scheme || u.Hostname() == "" {
		return failure.Usage("say how others reach it: --address "+scheme+"://HOST:PORT", "--address %s does not fit --listen, which serves %s", address, scheme)
	}
	if certificate == nil {
		return nil
	}
	pair, err := certificate.GetCertificate(nil)
	if err != nil {
		return err
	}
	options := x509.VerifyOptions{DNSName: u.Hostname(), Roots: trust.RootCAs, Intermediates: x509.NewCertPool()}
	for _, der := range pair.Certificate[1:] {
		if link, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(link)
		}
	}
	if _, err := pair.Leaf.Verify(options); err != nil {
		return failure.Usage("want a certificate for that host, of the authority that --ca names", "other receivers would refuse --tls-cert %s at %s: %w", c.TLSCert, address, err)
	}
	return nil
}
