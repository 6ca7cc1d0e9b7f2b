package parts

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/fleet"
	fleetkubernetes "github.com/headway-rl/headway/engine/fleet/kubernetes"
	programs "github.com/headway-rl/headway/engine/fleet/process"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/kubernetes"
	"github.com/headway-rl/headway/loop"
)

// EnginesDir is where programs of a fleet write to, in a run's directory.
const EnginesDir = "engines"

// NamesOf are the names of a document's engines.
func NamesOf(cfg config.Config) []string {
	names := make([]string, len(cfg.Engines))
	for i, e := range cfg.Engines {
		names[i] = e.Name
	}
	return names
}

// cellsOf are the cells of a document's engines, empty for the control plane's own.
func cellsOf(cfg config.Config) []string {
	names := make([]string, len(cfg.Engines))
	for i, e := range cfg.Engines {
		names[i] = e.Cell
	}
	return names
}

// guest asks the server of a cell's engine, which its cell uses, whether it has come.
type guest struct {
	engine *upstream.Engine
	server *upstream.Server
}

// newGuest makes what asks the server of an engine that the fleet starts for a cell.
func (p *Parts) newGuest(i int, e config.Engine) error {
	made, home, err := p.newServer(i, e)
	if err != nil {
		return err
	}
	p.guests[i] = guest{made, home}
	p.OnClose(made.Close)
	return nil
}

// serverOf is where the server of an engine is, of the fleet's in cells too.
func (p *Parts) serverOf(i int) *upstream.Server {
	if p.Servers[i] == nil {
		return p.guests[i].server
	}
	return p.Servers[i]
}

// admit asks an engine that was started what it can, and refuses one that the run cannot use. One of a cell has come once
// its cell is heard.
func (p *Parts) admit(ctx context.Context, i int) error {
	ask := p.guests[i].engine
	look := ask.Look
	if p.Owns(i) {
		look = p.Upstreams[i].Probe
	} else if err := p.host.Heard(p.Cfg.Engines[i].Cell); err != nil {
		return err
	}
	caps, err := look(ctx)
	if err != nil {
		return err
	}
	if err := p.Judge(i, caps); err != nil {
		return fmt.Errorf("%w: %w", fleet.ErrUnfit, err)
	}
	return nil
}

// fleetOf is a fleet over a driver, nil where the document has none. probe is the engines' own word, nil for none.
func (p *Parts) fleetOf(driver fleet.Driver, probe func(ctx context.Context, engine int) error) *fleet.Fleet {
	return fleet.New(fleet.Options{Driver: driver, Names: NamesOf(p.Cfg), Probe: probe, Logf: p.logf})
}

// WithFleet has a run ask the job's fleet for engines.
func (p *Parts) WithFleet(opt *live.Options) {
	if p.Fleet == nil {
		return
	}
	f := p.Cfg.Fleet
	opt.Fleet, opt.AcquireWithin, opt.ReleaseWithin = p.Fleet, config.Seconds(f.StartTimeoutS), config.Seconds(f.StopTimeoutS)
	opt.RejoinAfter = max(opt.RejoinAfter, time.Second)
}

// fleetPorts are the ports of a fleet's programs.
func fleetPorts(f config.Fleet) ([]int, error) {
	if f.Port == 0 {
		return programs.FreePorts(f.Most)
	}
	ports := make([]int, f.Most)
	for i := range ports {
		ports[i] = f.Port + i
	}
	return ports, nil
}

// ScaledWorkload is the workload of a document's fleet.
func ScaledWorkload(cfg config.Config) (*fleetkubernetes.Driver, error) {
	f := cfg.Fleet
	d, err := fleetkubernetes.New(fleetkubernetes.Options{
		Cluster: kubernetes.Cluster{Config: f.Config, Context: f.Context}, Namespace: f.Namespace, Workload: f.Workload, Engines: f.Most, Least: f.Least,
	})
	if err != nil {
		return nil, failure.Run("headway doctor says what is missing", "fleet: %w", err)
	}
	return d, nil
}

// AwayOf reports whether an engine is a fleet's that has not started it. A cell takes one for away that serves nothing yet.
func (p *Parts) AwayOf(i int) bool {
	if p.host.Cell != "" {
		return p.Cfg.Elastic() && p.Upstreams[i].Status().Version == loop.NoVersion
	}
	return p.Fleet != nil && p.Fleet.Status()[i].State == fleet.Away
}

// FleetStatus is what the status says of a fleet's engine, nil where there is no fleet.
func (p *Parts) FleetStatus(i int, now time.Time) *protocol.Started {
	if p.Fleet == nil {
		return nil
	}
	s := p.Fleet.Status()[i]
	return &protocol.Started{State: s.State, SinceS: now.Sub(s.Since).Seconds(), Starts: s.Starts, Failures: s.Failures, StartS: s.StartS, Error: s.Error}
}

// ReachedFleet is the fleet that a run began with, started as the present document says. How many engines there may be
// is the run's.
func ReachedFleet(began, now config.Fleet) config.Fleet {
	if began.Driver == "" || now.Driver == "" || began.Driver == "embedded" || now.Driver == "embedded" {
		return began
	}
	now.Least, now.Most, now.Start = began.Least, began.Most, began.Start
	return now
}
