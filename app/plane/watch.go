package plane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/api/watchdog"
	"github.com/headway-rl/headway/loop/port"
)

// lookEvery is the time between two looks at the run.
const lookEvery = time.Second

// watch looks at the run now and then, says what is missing while nothing makes
// progress, and stops the run where the document asks for that.
func (p *Plane) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	w := p.Cfg.Watchdog
	guard := watchdog.New(watchdog.Options{AfterS: w.AfterS, LeaseS: p.Cfg.Server.LeaseS, ClaimS: p.Cfg.Server.ClaimS})
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		p.loseUnsound()
		view := p.watched()
		stall, stop := guard.Look(view)
		p.logStall(stall)
		p.logHeld(guard.Held(view))
		if stop && w.Action == "stop" && p.currentState() == StateRunning {
			cancel(fmt.Errorf("the watchdog stopped the run (watchdog.action: stop): %s", findingsText(stall)))
			return
		}
	}
}

// loseUnsound tells the loop of engines of which a stage on another node is gone or has
// lost its weights: they get no work until all their stages have loaded in full.
func (p *Plane) loseUnsound() {
	unsound := p.receivers.Unsound()
	status := p.runtime.Load().View().Status
	for i, e := range p.Parts.Engines {
		if slices.Contains(unsound, e.Name()) && i < len(status.Engines) && status.Engines[i].State == "serving" {
			p.logf("engine %s: a stage of it is silent, new or without weights; it loads in full before it gets work again", e.Name())
			p.runtime.Load().EngineLost(e.Name())
		}
	}
}

// watched is what the watchdog judges.
func (p *Plane) watched() watchdog.View {
	v := p.runtime.Load().View()
	w := watchdog.View{
		NowS: float64(p.present()) / 1e9, Status: p.Status(), RemoteWorkers: p.Workers != nil && p.OwnsAny(), Holding: v.Status.Holding,
		PeriodS: float64(v.PeriodNS) / 1e9, RolloutS: v.Summary.RolloutS.Mean, SyncTarget: v.Status.SyncTarget, Together: !p.Rules.RollingSwitch,
	}
	if v.Offered {
		w.BatchS = float64(v.NowNS-v.OfferedNS) / 1e9
	}
	for _, e := range v.Engines {
		out := watchdog.Engine{Error: e.Error}
		if e.Oldest != (port.RolloutID{}) {
			out.Oldest = watchdog.RolloutName(e.Oldest.Group, e.Oldest.Sample, e.Oldest.Attempt)
			out.OldestS = float64(v.NowNS-e.OldestNS) / 1e9
		}
		w.Engines = append(w.Engines, out)
	}
	return w
}

// logStall says what is missing when that begins, changes or ends.
func (p *Plane) logStall(stall *protocol.Stall) {
	before := p.stall.Swap(stall)
	switch {
	case stall == nil && before != nil:
		p.logf("progress again")
		p.send(map[string]any{"kind": "stall", "stall": nil})
	case stall != nil && (before == nil || codes(before) != codes(stall)):
		p.logf("no progress for %.0f s: %s", stall.SinceS, findingsText(stall))
		p.send(map[string]any{"kind": "stall", "stall": stall})
	}
}

// logHeld says which engines a weight sync waits for when that begins, changes or ends.
func (p *Plane) logHeld(held *protocol.Finding) {
	before := p.held.Swap(held)
	switch {
	case held == nil && before != nil:
		p.logf("no weight sync waits for %s any more", before.Subject)
	case held != nil && (before == nil || before.Subject != held.Subject):
		p.logf("%s", held.Message)
	}
}

func findingsText(s *protocol.Stall) string {
	words := make([]string, len(s.Findings))
	for i, f := range s.Findings {
		words[i] = f.Message
	}
	return strings.Join(words, "; ")
}

func codes(s *protocol.Stall) string {
	var out []string
	for _, f := range s.Findings {
		out = append(out, f.Code+" "+f.Subject)
	}
	return strings.Join(out, ",")
}
