package plane

import (
	"context"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/tinker"
)

// TrainerService is the state of the trainer of such a run.
const TrainerService = "service"

// openHosted waits for the service of a run, and begins a stay at it; it does nothing for other runs.
func (p *Plane) openHosted(ctx context.Context, goesOn bool) error {
	if !p.Cfg.Tinker() {
		return nil
	}
	e := p.Cfg.Engines[0]
	o, err := parts.ServiceOf(e)
	if err != nil {
		return p.Cfg.Refuse("engines.0.key_file", "is no use: "+err.Error(), "a file with the service's API key, or leave it out")
	}
	bases, err := p.awaitService(ctx, o, goesOn)
	if err != nil {
		return err
	}
	base, problem, allowed := parts.BaseOf(e, bases)
	if problem != "" {
		return p.Cfg.Refuse("engines.0.served_model", problem, allowed)
	}
	if err := p.KeepShape(base); err != nil {
		return err
	}
	o.Name, o.Logf = p.name, p.sparingly()
	session, err := tinker.Open(ctx, o)
	if err != nil {
		return failure.Run("start it again: nothing is lost", "engine %s at %s: %w", e.Name, e.URL, err)
	}
	err = p.OpenService(session, base, p.fence)
	p.logf("engine %s: %s at %s samples and trains", e.Name, base, e.URL)
	if p.Cfg.Gateway.Template == "" && p.Cfg.Environment.Kind == "remote" {
		p.logf("engine %s renders no chats and reads no texts: /v1 serves prompts of token ids alone; gateway.template names a server that renders", e.Name)
	}
	return err
}

// awaitService asks a service which base models it has until it answers. A new run waits as long as for other
// servers; one that goes on has no work without it, and waits until somebody ends it.
func (p *Plane) awaitService(ctx context.Context, o tinker.Options, goesOn bool) ([]string, error) {
	e := p.Cfg.Engines[0]
	limit, most := time.NewTimer(serversWait), "up to "+serversWait.String()
	if goesOn {
		limit.Stop()
		most = "until it does"
	}
	defer limit.Stop()
	again := time.NewTicker(serversAgain)
	defer again.Stop()
	defer p.awaits("", "")
	said := ""
	for {
		bases, err := parts.BasesOf(ctx, o)
		switch {
		case err == nil:
			return bases, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case parts.Unwelcome(err, goesOn):
			return nil, failure.Usage("look at engines.0.url and key_file; headway doctor says it again without starting anything", "engine %s: %s is no service for this run: %w", e.Name, e.URL, err)
		}
		if text := err.Error(); text != said {
			said = text
			p.awaits("the service to answer", text)
			p.logf("engine %s: no answer from %s: waiting, %s: %s", e.Name, e.URL, most, text)
		}
		select {
		case <-again.C:
		case <-limit.C:
			return nil, failure.Usage("start the service, or look at engines.0.url; headway doctor says what it lacks", "engine %s: no answer from %s within %s: %s", e.Name, e.URL, serversWait, said)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// hostedStatus is what the status says of the service.
func (p *Plane) hostedStatus() *protocol.Server {
	e, s := p.Cfg.Engines[0], p.Service.Engine.Status()
	return &protocol.Server{
		URL: e.URL, Software: "Tinker's API, " + p.Service.Base, State: s.State, Cause: s.Cause, Versions: "reported", Weights: e.Weights,
		Running: s.Running, Tokens: s.Tokens, Retries: s.Retries,
	}
}
