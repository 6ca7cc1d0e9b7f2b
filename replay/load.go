package replay

import (
	"fmt"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/trace"
)

// Run is a run rebuilt from its trace, ready to go on.
type Run struct {
	// Header of the trace.
	Header trace.Header
	// Loop as it was after the last recorded event, Recorder fed with all of them.
	Loop     *loop.Loop
	Recorder *metrics.Recorder
	// Encoder goes on after the trace's last line.
	Encoder *trace.Encoder
	// Ended: the trace ends with its end note, the process before finished in order.
	Ended  bool
	groups map[loop.GroupID]struct{}
}

// Lives reports whether a group has been started and may still be trained.
func (r *Run) Lives(g loop.GroupID) bool {
	_, ok := r.groups[g]
	return ok
}

// Load rebuilds a run from its trace, whether or not that has its end note. It
// refuses a trace that the loop does not reproduce: a run goes on under the
// rules it began with, or not at all. Each observer is called with every event of
// the trace in turn, the ledger after it and the actions that follow from it.
func Load(r io.Reader, observers ...func(ev loop.Event, after loop.Ledger, actions []loop.Action)) (*Run, error) {
	p, err := newPlayer(r)
	if err != nil {
		return nil, err
	}
	run := &Run{Header: p.header, Loop: p.loop, Recorder: metrics.NewRecorder(p.loop.Config()), groups: map[loop.GroupID]struct{}{}}
	run.Recorder.Warmup = run.Header.Warmup
	kept := p.loop.Config().Policy == loop.PolicyReplay // trained groups may be trained again
	p.OnEvent = func(ev *trace.Event, seq int64, actions []loop.Action) {
		run.Recorder.Observe(ev.Event, p.measured(ev), actions)
		for _, observe := range observers {
			observe(ev.Event, p.loop.Ledger(), actions)
		}
		for _, a := range actions {
			switch {
			case a.Kind == loop.StartRollout:
				run.groups[a.Group] = struct{}{}
			case a.Kind == loop.GroupEnded, a.Kind == loop.GroupTrained && !kept:
				delete(run.groups, a.Group)
			}
		}
	}
	if err := p.Play(); err != nil {
		return nil, err
	}
	if d := p.Tally().Difference; d != nil {
		return nil, fmt.Errorf("replay: the trace was recorded by %q under other rules, %v: resume it with that version of headway", run.Header.Program, d)
	}
	run.Ended, run.Encoder = p.Tally().Ended, p.reader.Encoder()
	return run, nil
}
