package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// serversWait is how long a new run waits for its engines: servers are often started at the same time,
// and take minutes to load a model. serversAgain is the time between two looks.
const (
	serversWait  = 10 * time.Minute
	serversAgain = 2 * time.Second
)

// buildPlaneEngines makes the engines of a control plane.
func (p *plane) buildPlaneEngines() error {
	switch {
	case p.policy == nil:
		return p.buildEngines()
	case p.hosted != nil:
		return p.buildHostedEngine()
	}
	driver, ports, err := p.driverOfServers()
	if err != nil {
		return err
	}
	if driver != nil {
		p.fleet = p.fleetOf(driver, p.admit)
	}
	for i, e := range p.cfg.Engines {
		e.URL = p.cfg.EngineURL(i, ports)
		made, home, err := p.newServer(i, e)
		if err != nil {
			return err
		}
		p.engines, p.servers, p.homes = append(p.engines, made), append(p.servers, made), append(p.homes, home)
	}
	return nil
}

// newServer makes the engine of a server, which is asked nothing yet.
func (p *plane) newServer(i int, e config.Engine) (*upstream.Engine, *upstream.Server, error) {
	server, err := serverOf(e)
	if err != nil {
		return nil, nil, p.cfg.Refuse(fmt.Sprintf("engines.%d.key_file", i), "is no use: "+err.Error(), "a file with the server's API key, or leave it out")
	}
	root, err := filepath.Abs(filepath.Join(p.dir, "weights"))
	if err != nil {
		return nil, nil, err
	}
	made, err := upstream.New(upstream.Options{
		Name: e.Name, Slots: e.Slots, Server: server, Dialect: dialectOf(e, p.say), Road: upstream.Road(e.Weights),
		Views: func(ctx context.Context, version loop.Version) (string, error) {
			view, err := p.weights.View(ctx, version)
			if err != nil {
				return "", err
			}
			return filepath.Abs(view)
		},
		ServerPath: seenFrom(root, e.WeightsDir), Sender: p.senderFor(e), Groups: p.groupsFor(e),
		Cache: e.Cache, Silent: lasting(e.SilentS), Update: lasting(e.UpdateS), Sampling: p.sampling(), Vocabulary: p.vocabulary(), Ends: p.policy.checkpoint.Ends, Traceparent: p.traceparent(), Logf: p.say,
	})
	return made, server, err
}

// serverOf is where an engine's server is.
func serverOf(e config.Engine) (*upstream.Server, error) {
	return upstream.NewServer(upstream.ServerOptions{URL: e.URL, Model: e.ServedModel, KeyFile: e.KeyFile, Connections: 2 * e.Slots})
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
func (p *plane) initialVersion() func(context.Context) error {
	for _, e := range p.cfg.Engines {
		if e.Weights == "lora" {
			return nil
		}
	}
	return func(ctx context.Context) error {
		if len(p.policy.checkpoint.Weights) == 0 {
			return p.cfg.Refuse("model.path", "has no weights any more, and version 0 is not published yet", "the directory that the engines' servers were started with")
		}
		p.say("publishing the weights of %s as version 0", p.policy.checkpoint.Dir)
		return p.weights.PublishCheckpoint(ctx, p.policy.checkpoint)
	}
}

// serverAnswer is what asking a server came to.
type serverAnswer struct {
	engine int
	caps   upstream.Capabilities
	err    error
}

// ask asks servers what they can, all at once.
func (p *plane) ask(ctx context.Context, engines []int) []serverAnswer {
	answers := make([]serverAnswer, len(engines))
	var all sync.WaitGroup
	for i, engine := range engines {
		all.Go(func() {
			caps, err := p.servers[engine].Probe(ctx)
			answers[i] = serverAnswer{engine, caps, err}
		})
	}
	all.Wait()
	return answers
}

// awaitServers asks the servers what they can, says what they lack, and ends the start where nothing
// could be trained on without it. A new run waits for servers that do not answer; one that goes on
// has work without them, and they join when they answer. Those that are started from here are not
// asked: they do not run yet.
func (p *plane) awaitServers(ctx context.Context, goesOn bool) error {
	if len(p.servers) == 0 || p.fleet != nil { // each is asked when it was started
		return nil
	}
	var left []int
	for i := range p.servers {
		if upstream.Road(p.cfg.Engines[i].Weights) != upstream.RoadRestart { // the first switch starts those
			left = append(left, i)
		}
	}
	limit := time.NewTimer(serversWait)
	defer limit.Stop()
	again := time.NewTicker(serversAgain)
	defer again.Stop()
	defer p.awaits("", "")
	said := ""
	for {
		var down []string
		var failures []error
		silent := left[:0:0]
		for _, a := range p.ask(ctx, left) {
			if errors.Is(a.err, upstream.ErrKind) && !goesOn {
				failures = append(failures, failure.Usage("look at engines.*.kind, url and served_model; headway doctor says it again without starting anything", "%w", a.err))
				continue
			}
			if a.err != nil {
				silent = append(silent, a.engine)
				down = append(down, a.err.Error())
				continue
			}
			failures = append(failures, p.judge(a.engine, a.caps))
		}
		if err := errors.Join(failures...); err != nil {
			return err
		}
		left = silent
		if len(left) == 0 {
			return nil
		}
		if goesOn {
			p.say("engines unreachable: going on without them, they join when they answer: %s", strings.Join(down, "; "))
			return nil
		}
		if text := strings.Join(down, "; "); text != said {
			said = text
			p.awaits(fmt.Sprintf("%d of %s to answer", len(left), report.Counted(len(p.servers), "engine")), text)
			p.say("engines unreachable: waiting, up to %s: %s", serversWait, text)
		}
		select {
		case <-again.C:
		case <-limit.C:
			return failure.Usage("start the servers, or look at engines.*.url and kind; headway doctor says what each lacks", "no answer from %d of %d engines within %s: %s", len(left), len(p.servers), serversWait, said)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// judge says what a server lacks, and whether that ends the start.
func (p *plane) judge(engine int, caps upstream.Capabilities) error {
	e := p.cfg.Engines[engine]
	home := p.homes[engine].URL()
	p.say("engine %s: %s at %s", e.Name, softwareOf(e, caps), home)
	var fatal []string
	for _, m := range caps.Lacks(upstream.Road(e.Weights)) {
		if m.Fatal {
			fatal = append(fatal, m.String())
		} else {
			p.say("engine %s: %s", e.Name, m)
		}
	}
	if caps.Slots > 0 && e.Slots > caps.Slots {
		p.say("engine %s: it has %d slots, and its server samples %d responses at once: the others wait there without a token, and count as hung after silent_s; set slots to %d, or start the server with room for more", e.Name, e.Slots, caps.Slots, caps.Slots)
	}
	fatal = append(fatal, unfit(caps, p.vocabulary(), p.limits())...)
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

// serverStatus is what the status says of an engine's server, nil for an embedded one.
func (p *plane) serverStatus(i int) *protocol.Server {
	if p.hosted != nil {
		return p.hostedStatus()
	}
	if i >= len(p.servers) {
		return nil
	}
	e, engine := p.cfg.Engines[i], p.servers[i]
	s := engine.Status()
	out := &protocol.Server{
		URL: p.homes[i].URL(), Software: s.Software, State: s.State, Cause: s.Cause, Weights: e.Weights, Running: s.Running,
		Tokens: s.Tokens, Retries: s.Retries, Losses: s.Losses, Disagreements: s.Disagreements,
	}
	if !s.Until.IsZero() {
		out.LeftS = max(s.Until.Sub(p.app.Now()).Seconds(), 0)
	}
	caps, asked := engine.Capabilities()
	if !asked {
		return out
	}
	out.Cache, out.Versions = s.Cache, "derived"
	if caps.VersionSpans {
		out.Versions = "reported"
	}
	for _, m := range caps.Lacks(upstream.Road(e.Weights)) {
		out.Missing = append(out.Missing, protocol.Missing{What: m.What, Flag: m.Flag, Fatal: m.Fatal})
	}
	return out
}
