package parts

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/fleet"
	programs "github.com/headway-rl/headway/engine/fleet/process"
	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/store/weights"
)

// buildServers makes the engines that are servers of their own, which are asked nothing yet.
func (p *Parts) buildServers() error {
	p.closesEngines()
	driver, ports, err := p.driverOfServers()
	if err != nil {
		return err
	}
	if driver != nil {
		p.Fleet = p.fleetOf(driver, p.admit)
		p.guests = make([]guest, len(p.Cfg.Engines))
	}
	for i, e := range p.Cfg.Engines {
		e.URL = p.Cfg.EngineURL(i, ports)
		if !p.Owns(i) {
			p.Engines, p.Upstreams, p.Servers = append(p.Engines, live.Elsewhere(e.Name, e.Slots)), append(p.Upstreams, nil), append(p.Servers, nil)
			if p.Fleet != nil {
				if err := p.newGuest(i, e); err != nil {
					return err
				}
			}
			continue
		}
		made, home, err := p.newServer(i, e)
		if err != nil {
			return err
		}
		p.Engines, p.Upstreams, p.Servers = append(p.Engines, made), append(p.Upstreams, made), append(p.Servers, home)
	}
	return nil
}

// newServer makes the engine of a server, which is asked nothing yet.
func (p *Parts) newServer(i int, e config.Engine) (*upstream.Engine, *upstream.Server, error) {
	server, err := ServerOf(e)
	if err != nil {
		return nil, nil, p.Cfg.Refuse(fmt.Sprintf("engines.%d.key_file", i), "is no use: "+err.Error(), "a file with the server's API key, or leave it out")
	}
	root, err := filepath.Abs(filepath.Join(p.Dir, "weights"))
	if err != nil {
		return nil, nil, err
	}
	server.RawReads = p.Cfg.Gateway.RawIO
	AskChannels(server, p.Cfg, p.policy.checkpoint)
	var sender upstream.Sender
	var groups upstream.CollectiveRegistry
	if ByCollective(e) {
		sender, groups = p.host.Sender, p.host.Groups
	}
	dialect, err := DialectOf(e, p.logf)
	if err != nil {
		return nil, nil, err
	}
	made, err := upstream.New(upstream.Options{
		Name: e.Name, Slots: e.Slots + p.Cfg.EvaluationSlots(e.Name), Server: server, Dialect: dialect, Delivery: upstream.Delivery(e.Weights),
		Views: func(ctx context.Context, version loop.Version) (string, error) {
			view, err := p.Weights.View(ctx, version)
			if err != nil {
				return "", err
			}
			return filepath.Abs(view)
		},
		ServerPath: seenFrom(root, e.WeightsDir), Sender: sender, Groups: groups,
		Cache: e.Cache, Silent: config.Seconds(e.SilentS), Update: config.Seconds(e.UpdateS), Sampling: p.sampling(), Vocabulary: p.Vocabulary(), Ends: p.policy.checkpoint.Ends, Traceparent: p.host.Traceparent, Replaced: p.host.Replaced, LogPayloads: p.Cfg.Server.LogPayloads, Logf: p.logf,
	})
	return made, server, err
}

// ServerOf is where an engine's server is.
func ServerOf(e config.Engine) (*upstream.Server, error) {
	return upstream.NewServer(upstream.ServerOptions{URL: e.URL, Model: e.ServedModel, KeyFile: e.KeyFile, Connections: 2 * e.Slots})
}

// AskChannels has a server asked for the side channels of a document, for a model.
func AskChannels(server *upstream.Server, document config.Config, model weights.Checkpoint) {
	server.Channels = document.Rollout.Channels
	server.Experts = expertsOf(model)
}

func expertsOf(model weights.Checkpoint) rows.Shape {
	return rows.Shape{Layers: model.Layers, TopK: model.ExpertsPerToken, Experts: model.Experts}
}

// askedChannels are the side channels of the document, in the form that an engine says them, or is expected to where
// none of them has been asked.
func (p *Parts) askedChannels() []channel.Header {
	if p.policy == nil { // embedded engines say none
		return nil
	}
	out := make([]channel.Header, 0, len(p.Cfg.Rollout.Channels))
	for _, name := range p.Cfg.Rollout.Channels {
		header := rows.Expected(name, expertsOf(p.policy.checkpoint))
		for _, e := range p.OwnUpstreams() {
			caps, _ := e.Capabilities()
			if at := slices.IndexFunc(caps.Channels, func(f rows.Form) bool { return f.Name == name }); at >= 0 {
				header = caps.Channels[at].Header
				break
			}
		}
		out = append(out, header)
	}
	return out
}

// seenFrom says where a server sees a directory below root, which it sees as dir; nil where it sees
// the same. Servers are asked in their own paths, which have slashes.
func seenFrom(root, dir string) func(string) string {
	if dir == "" {
		return nil
	}
	return func(view string) string {
		below, err := filepath.Rel(root, view)
		if err != nil || !filepath.IsLocal(below) {
			return view
		}
		return path.Join(dir, filepath.ToSlash(below))
	}
}

// initialVersion makes version 0: the model's own weights. Where versions are adapters the trainer
// makes it, and there is none here.
func (p *Parts) initialVersion() func(context.Context) error {
	for _, e := range p.Cfg.Engines {
		if e.Weights == "lora" {
			return nil
		}
	}
	return func(ctx context.Context) error {
		if len(p.policy.checkpoint.Weights) == 0 {
			return p.Cfg.Refuse("model.path", "has no weights any more, and version 0 is not published yet", "the directory that the engines' servers were started with")
		}
		p.logf("publishing the weights of %s as version 0", p.policy.checkpoint.Dir)
		return p.Weights.PublishCheckpoint(ctx, p.policy.checkpoint)
	}
}

// ByCollective reports whether an engine takes its tensors from a sender, over a collective.
func ByCollective(e config.Engine) bool { return e.Weights == string(upstream.DeliveryDistributed) }

// ServerAnswer has what the server of an engine can, or the error of asking it. Engine is the place in the document.
type ServerAnswer struct {
	Engine int
	Caps   upstream.Capabilities
	Err    error
}

// Asked are the engines of this process whose servers run before it does, so that a start can ask them.
func (p *Parts) Asked() (own []int) {
	for i, e := range p.Cfg.Engines {
		if p.Owns(i) && upstream.Delivery(e.Weights) != upstream.DeliveryRestart { // the first switch starts those
			own = append(own, i)
		}
	}
	return own
}

// WrongKind is the error that ends a start at an answer that wraps upstream.ErrKind.
func WrongKind(err error) error {
	return failure.Usage("look at engines.*.kind, url and served_model; headway doctor says it again without starting anything", "%w", err)
}

// Ask asks servers what they can, all at once.
func (p *Parts) Ask(ctx context.Context, engines []int) []ServerAnswer {
	answers := make([]ServerAnswer, len(engines))
	var all sync.WaitGroup
	for i, engine := range engines {
		all.Go(func() {
			ask := p.Upstreams[engine].Probe
			if p.host.Cell != "" { // until the run has it join, another process of the cell may play there
				ask = p.Upstreams[engine].Look
			}
			caps, err := ask(ctx)
			answers[i] = ServerAnswer{engine, caps, err}
		})
	}
	all.Wait()
	return answers
}

// Judge says what a server lacks, and whether that ends the start.
func (p *Parts) Judge(engine int, caps upstream.Capabilities) error {
	e := p.Cfg.Engines[engine]
	home := p.serverOf(engine).URL()
	p.logf("engine %s: %s at %s", e.Name, softwareOf(e, caps), home)
	var fatal []string
	for _, m := range caps.Lacks(upstream.Delivery(e.Weights)) {
		if m.Fatal {
			fatal = append(fatal, m.String())
		} else {
			p.logf("engine %s: %s", e.Name, m)
		}
	}
	if slots := e.Slots + p.Cfg.EvaluationSlots(e.Name); caps.Slots > 0 && slots > caps.Slots {
		p.logf("engine %s: it has %d slots, and its server samples %d responses at once: the others wait there without a token, and count as hung after silent_s; set slots, those of evaluate.slots included, to %d, or start the server with room for more", e.Name, slots, caps.Slots, caps.Slots)
	}
	fatal = append(fatal, unfit(caps, p.Vocabulary(), p.Limits())...)
	if len(fatal) > 0 {
		return failure.Usage("headway doctor with this document says it again without starting anything", "engine %s at %s cannot be used: %s", e.Name, home, strings.Join(fatal, "; "))
	}
	return nil
}

// softwareOf names a server's program.
func softwareOf(e config.Engine, caps upstream.Capabilities) string {
	if caps.Software == "" {
		return e.Kind
	}
	return caps.Software
}

// driverOfServers makes what starts the servers of a document, and the ports that they are to listen on.
func (p *Parts) driverOfServers() (driver fleet.Driver, ports []int, err error) {
	f := p.Cfg.Fleet
	if p.host.Cell != "" { // which is started itself
		return nil, nil, nil
	}
	switch f.Driver {
	case "process":
		if ports, err = fleetPorts(f); err != nil {
			return nil, nil, err
		}
		driver, err = programs.New(programs.Options{
			Command: f.Command, Names: NamesOf(p.Cfg), Ports: ports, CellCommand: f.CellCommand, Cells: cellsOf(p.Cfg), Dir: filepath.Join(p.Dir, EnginesDir), Grace: config.Seconds(f.GraceS), Logf: p.logf,
		})
	case "kubernetes":
		driver, err = ScaledWorkload(p.Cfg)
	}
	return driver, ports, err
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
