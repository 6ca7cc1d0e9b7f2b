package plane

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// healthEvery is the time between two looks at servers that nothing is asked of.
const healthEvery = 10 * time.Second

// suspect asks for a look at the servers at once. It does not block.
func (p *Plane) suspect() {
	select {
	case p.suspected <- struct{}{}:
	default: // one is asked for already
	}
}

// watchServers tells the loop of servers that are gone. Responses under way notice by themselves; an
// engine without any, or whose prompts cannot even be rendered, would count as serving for ever.
func (p *Plane) watchServers(ctx context.Context) {
	if len(p.OwnUpstreams()) == 0 {
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

// loseUnreachable asks all servers that should be there whether they are.
func (p *Plane) loseUnreachable(ctx context.Context) {
	var all sync.WaitGroup
	for i, e := range p.Upstreams {
		if !p.Owns(i) { // its cell loses it
			continue
		}
		if version, due := p.dueThere(i); due {
			all.Go(func() { p.loseIfGone(ctx, i, e, version) })
		}
	}
	all.Wait()
}

// dueThere reports whether somebody must answer for an engine, and the version that it serves by itself: where it
// serves, by the loop and by itself, and where it takes weights and the fleet says that it runs. A fleet's engine
// that died over its weights would else be given them again for ever, and never be started again; the server
// of somebody else takes them when it is back.
func (p *Plane) dueThere(i int) (loop.Version, bool) {
	run := p.runtime.Load()
	if run == nil {
		return loop.NoVersion, false
	}
	status, engines := p.Upstreams[i].Status(), run.View().Status.Engines
	if i >= len(engines) {
		return status.Version, false
	}
	switch engines[i].State {
	case "serving":
		return status.Version, status.State == "serving" || p.runsByFleet(i)
	case "joining":
		return status.Version, p.runsByFleet(i)
	}
	return status.Version, false
}

// runsByFleet reports whether an engine is there by the word of its fleet.
func (p *Plane) runsByFleet(i int) bool {
	return p.Fleet != nil && p.Fleet.Status()[i].State == fleet.Running
}

// loseIfGone declares an engine lost whose server nobody listens for any more. One that answers late,
// or that it is not well, is left to the responses that it samples.
func (p *Plane) loseIfGone(ctx context.Context, i int, e *upstream.Engine, version loop.Version) {
	ctx, cancel := context.WithTimeout(ctx, parts.AnswerLimit)
	defer cancel()
	err := p.Servers[i].Health(ctx)
	if err == nil || ctx.Err() != nil || !gone(err) {
		return
	}
	if now, due := p.dueThere(i); !due || now != version {
		return // a switch has begun meanwhile, which may start the server again
	}
	p.logf("engine %s: nobody answers at %s: %v", e.Name(), p.Servers[i].URL(), err)
	p.runtime.Load().EngineLost(e.Name())
}

// gone reports whether a server's address could not be spoken to at all. A slow one is not gone, nor is one whose name cannot be
// looked up for now.
func gone(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && !dns.IsNotFound {
		return false
	}
	network, ok := errors.AsType[net.Error](err)
	return ok && upstream.StatusOf(err) == 0 && !network.Timeout()
}
