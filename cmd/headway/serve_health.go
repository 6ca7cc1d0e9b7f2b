package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// healthEvery is the time between two looks at servers that nothing is asked of; healthLimit bounds one.
const (
	healthEvery = 10 * time.Second
	healthLimit = 20 * time.Second
)

// suspect asks for a look at the servers at once. It does not block.
func (p *plane) suspect() {
	select {
	case p.suspected <- struct{}{}:
	default: // one is asked for already
	}
}

// watchServers tells the loop of servers that are gone. Responses under way notice by themselves; an
// engine without any, or whose prompts cannot even be rendered, would count as serving for ever.
func (p *plane) watchServers(ctx context.Context) {
	if len(p.servers) == 0 {
		return
	}
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.suspected:
		case <-ctx.Done():
			return
		}
		p.loseUnreachable(ctx)
	}
}

// loseUnreachable asks all servers that should serve whether they are there.
func (p *plane) loseUnreachable(ctx context.Context) {
	var all sync.WaitGroup
	for i, e := range p.servers {
		if version, serves := p.serving(i); serves {
			all.Go(func() { p.loseIfGone(ctx, i, e, version) })
		}
	}
	all.Wait()
}

// serving reports whether an engine serves, by the loop and by itself, and which version.
func (p *plane) serving(i int) (loop.Version, bool) {
	run := p.runtime.Load()
	if run == nil {
		return loop.NoVersion, false
	}
	status, engines := p.servers[i].Status(), run.View().Status.Engines
	return status.Version, status.State == "serving" && i < len(engines) && engines[i].State == "serving"
}

// loseIfGone declares an engine lost whose server nobody listens for any more. One that answers late,
// or that it is not well, is left to the responses that it samples.
func (p *plane) loseIfGone(ctx context.Context, i int, e *upstream.Engine, version loop.Version) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	err := p.homes[i].Health(ctx)
	if err == nil || ctx.Err() != nil || !gone(err) {
		return
	}
	if now, serves := p.serving(i); !serves || now != version {
		return // a switch has begun meanwhile, which may start the server again
	}
	p.say("engine %s: nobody answers at %s: %v", e.Name(), p.homes[i].URL(), err)
	p.runtime.Load().EngineLost(e.Name())
}

// gone reports whether a server's address could not be spoken to at all. A slow one is not gone.
func gone(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && upstream.StatusOf(err) == 0 && !network.Timeout()
}
