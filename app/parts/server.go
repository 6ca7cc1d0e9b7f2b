package parts

import (
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/machine"
)

// ServerOptions are those of the API of this process, of a run, as the document has them. They are checked before anything runs.
func (p *Parts) ServerOptions(run, version string) (api.Options, error) {
	s := p.Cfg.Server
	clients, err := p.ConnectionsMax(machine.Descriptors())
	if err != nil {
		return api.Options{}, err
	}
	opt := api.Options{
		Run: run, Version: version, Directories: s.Directories, BodyBytesMax: int64(s.BodyBytesMax), WeightsBytesMax: int64(s.WeightsBytesMax),
		ConnectionsMax: clients, RequestsMax: s.RequestsMax,
		Drain: 5 * time.Second, Logf: p.logf, LogPayloads: s.LogPayloads, RawIO: p.Cfg.Gateway.RawIO,
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

// ServerStatus is what a status says of the server that an engine is. It is nil for an embedded one, and for one of another
// process.
func (p *Parts) ServerStatus(i int, now time.Time) *protocol.Server {
	if i >= len(p.Upstreams) || !p.Owns(i) {
		return nil
	}
	e, engine := p.Cfg.Engines[i], p.Upstreams[i]
	s := engine.Status()
	out := &protocol.Server{
		URL: p.Servers[i].URL(), Software: s.Software, State: s.State, Cause: s.Cause, Weights: e.Weights, Running: s.Running,
		Tokens: s.Tokens, Retries: s.Retries, Losses: s.Losses, Disagreements: s.Disagreements,
	}
	for _, c := range s.Channels {
		said := protocol.ServerChannel{Name: c.Name, Answers: c.Answers, Unstarted: c.Unstarted}
		for why, n := range c.Dropped {
			if said.Dropped == nil {
				said.Dropped = map[string]int64{}
			}
			said.Dropped[string(why)] += n
		}
		out.Channels = append(out.Channels, said)
	}
	if !s.Until.IsZero() {
		out.LeftS = max(s.Until.Sub(now).Seconds(), 0)
	}
	caps, asked := engine.Capabilities()
	if !asked {
		return out
	}
	out.Cache, out.Versions = s.Cache, "derived"
	if caps.VersionSpans {
		out.Versions = "reported"
	}
	for _, m := range caps.Lacks(upstream.Delivery(e.Weights)) {
		out.Missing = append(out.Missing, protocol.Missing{What: m.What, Flag: m.Flag, Fatal: m.Fatal})
	}
	return out
}
