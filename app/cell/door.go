package cell

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// door answers workers, agents and probes. A nil one is of a cell that opens no port.
type door struct {
	*Cell
	server *api.Server
	state  atomic.Pointer[string]
	began  time.Time
}

// openDoor makes what answers on the cell's listener. Rollouts that workers play need one.
func (c *Cell) openDoor() error {
	if c.opt.Listener == nil {
		if c.player == nil {
			return c.Cfg.Refuse("environment.kind", "has workers play the rollouts, and this cell opens no port for them", "--listen HOST:PORT, or tasks, which a cell plays itself")
		}
		return nil
	}
	d := &door{Cell: c, began: c.app.Now()}
	opt, err := c.ServerOptions(c.opt.Run, c.opt.Cell, c.opt.Version, c.app.Getenv("HEADWAY_DEBUG") != "")
	if err != nil {
		return err
	}
	opt.URL = c.opt.URL
	d.say("starting")
	if d.server, err = api.New(opt, api.Ports{Plane: d}); err != nil {
		return failure.Usage("", "%w", err)
	}
	c.door = d
	return nil
}

func (d *door) say(state string) { d.state.Store(&state) }

// serve answers until shut is called. Where it cannot any more, failed is told.
func (d *door) serve(ctx context.Context, failed context.CancelCauseFunc) (shut func() error) {
	if d == nil {
		return func() error { return nil }
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		err := d.server.Serve(serving, d.opt.Listener)
		if err != nil {
			failed(err)
		}
		served <- err
	}()
	d.logf("cell %s: listening on %s", d.opt.Cell, d.URL(d.opt.Listener))
	return func() error {
		stop()
		return <-served
	}
}

// open has those who ask find the cell's rollouts from now on.
func (d *door) open() error {
	if d == nil {
		return nil
	}
	ports := api.Ports{Plane: d}
	if d.player == nil {
		ports.Rollouts, ports.Gateway = d.Workers, d.gateway
	} else if d.player.Pool != nil {
		ports.Sandboxes = d.player.Pool
	}
	if d.Rules.ResumeRestart {
		var err error
		if ports.Signing, err = parts.Signing(d.own); err != nil {
			return err
		}
	}
	if err := d.server.Mount(ports); err != nil {
		return err
	}
	d.say("running")
	return nil
}

// farewell answers for a moment after the run's end, so that whoever waits for work learns that there is none.
func (d *door) farewell(ctx context.Context) {
	if d == nil || d.Workers == nil {
		return
	}
	d.say("stopped")
	d.Farewell(ctx)
}

// Ready implements api.Plane.
func (d *door) Ready() error {
	if state := *d.state.Load(); state == "starting" {
		return errors.New("the cell is starting: it waits for its run, for its engines' servers, or for the control plane")
	}
	return nil
}

// Status implements api.Plane, for what is in this process.
func (d *door) Status() protocol.Status {
	now := d.app.Now()
	steps, policy := d.Aims()
	s := protocol.Status{Run: d.opt.Run, Cell: d.opt.Cell, State: *d.state.Load(), Version: loop.NoVersion, Steps: steps, Policy: policy,
		UptimeS: now.Sub(d.began).Seconds()}
	s.Ledger.Balanced = true
	if s.State == "starting" {
		return s
	}
	s.Engines = d.engines(now)
	s.Workers, s.Bounds, s.Scoring = d.Workers.Status(), d.bounds(), d.ScoringStatus()
	g := d.gateway.Status()
	s.Gateway = &g
	if d.player != nil {
		s.Environment = d.player.Status(now)
	}
	return s
}

// engines are those of the cell.
func (d *door) engines(now time.Time) (own []protocol.Engine) {
	for i, e := range d.Cfg.Engines {
		if d.Owns(i) {
			u := d.Upstreams[i].Status()
			own = append(own, protocol.Engine{Name: e.Name, Kind: e.Kind, Version: u.Version, State: u.State, Active: u.Running, Slots: e.Slots, Server: d.ServerStatus(i, now)})
		}
	}
	return own
}

// Engines implements api.Plane. The control plane says which versions engines serve.
func (d *door) Engines() []protocol.EngineVersion { return nil }

// Subscribe implements api.Plane: the control plane tells of train steps, and a cell of nothing.
func (d *door) Subscribe(ctx context.Context) <-chan []byte {
	nothing := make(chan []byte)
	context.AfterFunc(ctx, func() { close(nothing) })
	return nothing
}

// workersEvery is the time between two looks at the workers.
const workersEvery = 30 * time.Second

// watchWorkers says that rollouts wait and no worker comes, and that one has come, until the context ends.
func (c *Cell) watchWorkers(ctx context.Context) {
	missed := false
	for pause.For(ctx, workersEvery) == nil {
		w := c.Workers.Status()
		switch missing := w.Known == 0 && w.Offered > 0; {
		case missing && !missed:
			c.logf("%s waiting for an environment worker at cell %s, and none has called within the last minute: start workers with its address, and a token of role environment", report.Counted(w.Offered, "rollout"), c.opt.Cell)
			missed = true
		case w.Known > 0 && missed:
			c.logf("a worker has come to cell %s", c.opt.Cell)
			missed = false
		}
	}
}
