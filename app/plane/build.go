package plane

import (
	"context"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/chat"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/store/transfer"
	remote "github.com/headway-rl/headway/train/remote"
)

// assemble builds the run's parts around an opened store.
func (p *Plane) assemble(resume *live.Resume) (err error) {
	upTo := loop.Version(0)
	if resume != nil {
		upTo = resume.Loop.Version()
	}
	p.LogTo(p.logf)
	if err := p.OpenRecord(upTo); err != nil {
		return err
	}
	p.source = &transfer.Source{}
	p.meetings = collective.NewRendezvous(collective.RendezvousOptions{})
	p.OnClose(func() error {
		p.meetings.Close()
		return nil
	})
	p.receivers = transfer.NewCoordinator(transfer.Options{Origin: TransferPrefix, Digest: p.source.Digest, Engines: p.stagesOf()})
	p.buildSenders()
	if err := p.Parts.Build(p.surroundings()); err != nil {
		return err
	}
	if p.gateway, err = chat.NewGateway(p.Parts, p.suspect, p.logf); err != nil {
		return err
	}
	if err := p.fence(); err != nil { // else a process that stood still as it began names its address behind its successor's
		return err
	}
	return p.writeAddress()
}

// surroundings are what the parts of this control plane are told of it.
func (p *Plane) surroundings() parts.Host {
	a := parts.Host{
		Name: p.name, Clock: p.present, Epoch: p.writerNow().Epoch, Fence: p.fence, Replaced: func(context.Context) error { return p.fence() }, Traceparent: p.Traceparent(), Rarely: p.sparingly(), Staged: p.staged,
		Heard:    func(cell string) error { return p.cells.absent(cell, p.App.Now()) },
		Ready:    func() { p.withRuntime(func(r *live.Runtime) { r.TrainerReady() }) },
		Restored: func(v loop.Version) { p.withRuntime(func(r *live.Runtime) { r.TrainerRestored(v) }) },
	}
	a.ReadyGroups = readyGroups{p}
	a.Blobs, _ = port.As[port.Blobs](p.log)
	if p.Rules.ResumeRestart {
		a.Turns = p.log
	}
	if p.senders != nil {
		a.Sender, a.Groups, a.Confirm = p.senders, p.groups, p.confirmSent
	}
	return a
}

// fence refuses to commit a version once this process is not the run's writer any more, or
// may not be.
func (p *Plane) fence() error {
	select {
	case <-p.deposed:
		return errDeposed
	default:
		return p.log.Holding()
	}
}

// withRuntime calls f once the run is there.
func (p *Plane) withRuntime(f func(*live.Runtime)) {
	if run := p.runtime.Load(); run != nil {
		f(run)
	}
}

// mount opens the API's paths over the run.
func (p *Plane) mount(ctx context.Context) error {
	ports := api.Ports{Plane: p, View: p.Shown.Model.Data()}
	if p.Service == nil {
		ports.Versions, ports.Meetings = remote.Versions{Store: p.Weights}, p.meetings
		ports.Receivers, ports.Chunks = p.receivers, p.source.Handler(TransferPrefix)
	}
	if p.Remote != nil {
		ports.Trainers = p.Remote
	}
	if p.senders != nil {
		ports.Senders = p.senders
	}
	if p.Rules.Control != nil {
		ports.Settings = p
	}
	switch {
	case p.Workers == nil:
	case p.OwnsAny():
		ports.Rollouts = p.Workers
	default:
		ports.Rollouts = inCells{p.Workers, someOf(p.Cfg.Cells())}
	}
	if p.Rules.ResumeRestart {
		var err error
		if ports.Signing, err = signing(ctx, p.Dir, p.shared()); err != nil {
			return err
		}
	}
	if p.gateway != nil {
		ports.Gateway = p.gateway
	}
	if p.player != nil && p.player.Pool != nil {
		ports.Sandboxes = p.player.Pool
	}
	if p.CodeTask != nil && p.CodeTask.Pool != nil {
		ports.Sandboxes = p.CodeTask.Pool
	}
	return p.server.Mount(ports)
}

// runtimeOptions are the live runtime's.
func (p *Plane) runtimeOptions(ctx context.Context, resume *live.Resume) live.Options {
	p.OnLine = func(line *steps.Line) { p.send(line) }
	opt := p.Options(ctx, p.log, resume, p.Around.Lines(p.Intro(nil)))
	opt.OnDiskFull, opt.OnSync, opt.RejoinAfter, opt.Patient, opt.Present = p.onDiskFull, p.onSync, time.Second, true, p.present
	return opt
}

// onSync tells status, metrics and viewers how long a weight sync took.
func (p *Plane) onSync(d live.SyncDone) {
	if len(d.Engines) == 0 { // all of them were lost on the way
		p.logf("version %d is served by no engine: loads or switches failed %s; engines take the newest version when they are back", d.Version, report.Counted(d.Failed, "time"))
		return
	}
	s := protocol.Sync{Version: d.Version, LoadS: float64(d.LoadNS) / 1e9, WaitS: float64(d.WaitNS) / 1e9, SwitchS: float64(d.SwitchNS) / 1e9, TotalS: float64(d.TotalNS) / 1e9, Failed: d.Failed}
	p.synced.Store(&s)
	p.server.ObserveSync(s)
	p.send(map[string]any{"kind": "served", "version": d.Version, "sync": s})
}

func (p *Plane) onDiskFull(cause error) {
	p.noRoom.Store(cause != nil)
	if cause != nil {
		p.logf("no room in %s%s: %v. The run waits, nothing is lost; free space or raise store.nats.payload_bytes_max or log_bytes_max", p.Dir, record.FreeText(p.Dir), cause)
	} else {
		p.logf("there is room again: going on")
	}
}
