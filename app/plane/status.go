package plane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Ready implements api.Plane.
func (p *Plane) Ready() error {
	err := p.readiness()
	if err != nil {
		p.refused.Store(true)
	}
	return err
}

func (p *Plane) readiness() error {
	switch state := p.currentState(); state {
	case StateRunning, StateDraining:
		return p.log.Holding() // what is ending is said by the ports
	case stateStopped:
		return nil
	case stateStandby:
		return errors.New("this process stands by; another one is the run's writer")
	default:
		if w := p.waiting.Load(); w != nil {
			return fmt.Errorf("the control plane is %s: it waits for %s", state, w.what)
		}
		return fmt.Errorf("the control plane is %s", state)
	}
}

// Status implements api.Plane.
func (p *Plane) Status() protocol.Status {
	steps, policy := p.Aims()
	s := protocol.Status{
		Run: p.name, State: p.currentState(), Version: loop.NoVersion, Steps: steps, Policy: policy,
		Writer: p.writerNow(), Recovery: p.recovered.Load(), Stall: p.stall.Load(), Held: p.held.Load(), Sync: p.synced.Load(), UptimeS: p.App.Now().Sub(p.Began).Seconds(),
	}
	if f := p.Forward(); f != nil && !f.Agrees {
		s.Forward = &protocol.Finding{Code: f.Cause.Name, Message: f.String()}
	}
	run := p.runtime.Load()
	if run == nil {
		s.Ledger.Balanced = true
		s.Trainer.State = "absent"
		s.Waits = p.waitText()
		return s
	}
	v := run.View()
	st := &v.Status
	s.Over = p.over()
	s.Version, s.Waits = st.Version, p.firstVersionText(v)
	s.Ledger = protocol.Ledger{Ledger: st.Ledger, Balanced: st.Ledger.Balanced()}
	s.Queue = protocol.Queue{Groups: st.QueueGroups, CapacityGroups: st.QueueCapacityGroups, HeldGroups: st.HeldGroups, LiveGroups: st.LiveGroups, BatchGroups: p.Rules.BatchGroups}
	if v.QueueFull {
		s.Queue.FullS = float64(v.NowNS-v.QueueFullNS) / 1e9
	}
	s.Engines = p.engineStatus(v)
	s.Throughput = throughputStatus(v)
	s.Verl = verlStatus(v.Summary)
	s.Staleness = protocol.Staleness{Mean: v.Staleness.Mean, P50: float64(v.Staleness.P50), P95: float64(v.Staleness.P95), Max: float64(v.Staleness.Max), PQS: v.Staleness.PQS, IQS: v.Staleness.IQS}
	s.Control = api.ControlOf(p.Rules.Control, st.Control, v.Summary.Control)
	if v.Attribution.Groups > 0 {
		s.Attribution = &v.Attribution
	}
	s.HeldOut = p.Evaluated()
	s.Failures, s.Binding = failuresStatus(v.Summary), v.Summary.Throughput.Binding
	s.Trainer, s.Sender = p.trainerStatus(v), p.senderStatus()
	if p.Workers != nil {
		s.Workers, s.Bounds = p.Workers.Status(), p.Workers.Bounds()
	}
	s.Bounds = append(s.Bounds, p.used.Bound(p.App.Now(), p.App.Processor)...)
	s.Cells = p.cells.status(p.App.Now())
	for i := range s.Cells {
		s.Cells[i].Away = !slices.ContainsFunc(s.Engines, func(e protocol.Engine) bool { return e.Cell == s.Cells[i].Name && e.State != "away" })
	}
	if p.gateway != nil {
		g := p.gateway.Status()
		s.Gateway = &g
	}
	s.Environment, s.Scoring = p.environmentStatus(), p.ScoringStatus()
	s.Disk = p.diskStatus(v.DiskFull)
	return s
}

// verlStatus are figures under verl's names, as Prometheus spells them.
func verlStatus(s metrics.Summary) map[string]float64 {
	if s.Steps == 0 {
		return nil
	}
	out := map[string]float64{}
	for _, named := range metrics.VerlMetrics(s) {
		out[strings.ReplaceAll(named.Name, "/", "_")] = named.Value
	}
	return out
}

// failuresStatus is how many attempts failed, and their shares of all that have a reward or failed.
func failuresStatus(s metrics.Summary) protocol.Failures {
	f := s.Failures
	out := protocol.Failures{Engine: f.Engine, Environment: f.Environment, Timeout: f.Timeout, Other: f.Other, Scorer: f.Scorer, Data: f.Data}
	if all := s.Throughput.ProductionRolloutsPerS*s.WindowS + float64(f.Infra()+f.Data); all > 0 {
		out.InfraRatio, out.DataRatio = float64(f.Infra())/all, float64(f.Data)/all
	}
	return out
}

// throughputStatus is queue health over the last train steps.
func throughputStatus(v live.View) protocol.Throughput {
	r := v.Rates
	return protocol.Throughput{
		ProductionRolloutsPerS: r.Production, EffectiveRolloutsPerS: r.Effective, ConsumptionRolloutsPerS: r.ConsumptionBusy, ConsumptionRolloutsPerWallS: r.ConsumptionWall,
		DroppedRolloutsPerS: r.Dropped, TokensPerS: r.TokensPerS, PeriodS: r.PeriodS, StepS: r.StepS, TrainerIdleRatio: v.TrainerIdle, RolloutIdleRatio: v.RolloutIdle,
		QueueTrendGroupsPerStep: r.Trend, Steps: r.Steps,
	}
}

func (p *Plane) engineStatus(v live.View) []protocol.Engine {
	stages := map[string][]protocol.EngineVersion{}
	for _, stage := range p.receivers.Versions() {
		stages[stage.Engine] = append(stages[stage.Engine], stage)
	}
	out := make([]protocol.Engine, 0, len(v.Status.Engines))
	for i, e := range v.Status.Engines {
		name := p.Parts.Engines[i].Name()
		out = append(out, protocol.Engine{Name: name, Kind: p.Cfg.Engines[i].Kind, Cell: p.Cfg.Engines[i].Cell, Version: e.Version, State: e.State, Active: e.Active, Slots: e.Slots, Stages: stages[name], Server: p.serverStatus(i), Started: p.FleetStatus(i, p.App.Now())})
	}
	return out
}

func (p *Plane) trainerStatus(v live.View) protocol.Trainer {
	s := protocol.Trainer{State: "embedded", Lease: v.Status.Lease}
	switch {
	case p.Remote != nil:
		s = p.Remote.Status()
	case p.Service != nil:
		s.State = TrainerService
	}
	s.IdleRatio = v.TrainerIdle
	return s
}

func (p *Plane) diskStatus(full bool) protocol.Disk {
	n := p.Cfg.Store.NATS
	d := protocol.Disk{BytesMax: int64(n.LogBytesMax) + int64(n.PayloadBytesMax), PayloadBytesMax: int64(n.PayloadBytesMax), Full: full, WeightsBytes: p.weightsBytes(), SnapshotBytes: p.log.SnapshotBytes()}
	d.LogBytes, d.PayloadBytes = p.log.Usage()
	return d
}

// weightsBytes is what the published versions take. A status is asked for often, and a
// manifest names every tensor: each is read once.
func (p *Plane) weightsBytes() (total int64) {
	if p.Weights == nil { // they are a service's
		return 0
	}
	versions, err := p.Weights.Versions()
	if err != nil {
		return 0
	}
	for _, v := range versions {
		size, known := p.sizes.Load(v)
		if !known {
			m, err := p.Weights.Manifest(v)
			if err != nil {
				continue
			}
			n := int64(0)
			for _, f := range m.Files {
				n += f.Size
			}
			size = n
			p.sizes.Store(v, size)
		}
		total += size.(int64)
	}
	if len(versions) > 0 { // those that were pruned are asked for no more
		p.sizes.Range(func(v, _ any) bool {
			if v.(loop.Version) < versions[0] {
				p.sizes.Delete(v)
			}
			return true
		})
	}
	return total
}

// Engines implements api.Plane.
func (p *Plane) Engines() []protocol.EngineVersion {
	var out []protocol.EngineVersion
	for _, e := range p.Status().Engines {
		out = append(out, protocol.EngineVersion{Engine: e.Name, Version: e.Version, Loaded: loop.NoVersion, State: e.State})
		out = append(out, e.Stages...)
	}
	return out
}
