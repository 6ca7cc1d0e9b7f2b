package parts

import (
	"context"
	"net"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/internal/pause"
)

// ServerOptions are those of the API of a run's cell, "" for the control plane's own, as the document has them. They are checked
// before anything runs. With debug the log has every request.
func (p *Parts) ServerOptions(run, cell, version string, debug bool) (api.Options, error) {
	s := p.Cfg.Server
	clients, err := p.ConnectionsMax(cell, machine.Descriptors())
	if err != nil {
		return api.Options{}, err
	}
	opt := api.Options{
		Run: run, Cell: cell, Version: version, Directories: s.Directories, BodyBytesMax: int64(s.BodyBytesMax), WeightsBytesMax: int64(s.WeightsBytesMax),
		ConnectionsMax: clients, RequestsMax: s.RequestsMax,
		Drain: 5 * time.Second, Logf: p.logf, LogPayloads: s.LogPayloads, RawIO: p.Cfg.Gateway.RawIO,
	}
	if debug {
		opt.Debugf = p.logf
	}
	if s.TokenFile != "" {
		if opt.Tokens, err = api.WatchTokens(s.TokenFile, p.logf); err != nil {
			return opt, failure.Usage("", "%w", err)
		}
	}
	if s.TLSCert != "" {
		if opt.TLS, err = api.LoadTLS(s.TLSCert, s.TLSKey, p.logf); err != nil {
			return opt, failure.Usage("", "%w", err)
		}
	}
	return opt, nil
}

// URL is where the API of this process is reached on a listener.
func (p *Parts) URL(listener net.Listener) string {
	scheme := "http"
	if p.Cfg.Server.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + listener.Addr().String()
}

// farewell is how long a finished run is answered for: longer than a client's pause between two calls.
const farewell = 10 * time.Second

// Farewell says that a finished run is still answered for, and waits for as long, or until the context ends.
func (p *Parts) Farewell(ctx context.Context) {
	p.logf("the run has ended: whoever asks for work is told so for %g s; interrupt to end at once", farewell.Seconds())
	_ = pause.For(ctx, farewell)
}
