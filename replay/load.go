package replay

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

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
	Ended bool
	// Outstanding are the effects that had been decided and have not finished, in
	// the order in which they were decided. The event "recovered" has the loop issue
	// them again.
	Outstanding []loop.Action
	groups      map[loop.GroupID]struct{}
}

// Lives reports whether a group has been started and has neither been trained nor ended otherwise.
func (r *Run) Lives(g loop.GroupID) bool {
	_, ok := r.groups[g]
	return ok
}

// Load rebuilds a run from its trace, whether or not that has its end note. It
// refuses a trace that the loop does not reproduce: a run goes on under the
// rules it began with, or not at all.
func Load(r io.Reader) (*Run, error) {
	p, err := newPlayer(r)
	if err != nil {
		return nil, err
	}
	run := &Run{Header: p.reader.Header, Loop: p.loop, Recorder: metrics.NewRecorder(p.loop.Config()), groups: map[loop.GroupID]struct{}{}}
	run.Recorder.Warmup = run.Header.Warmup
	effects := outstanding{effects: map[subject]numbered{}}
	p.event = func(ev *trace.Event, seq int64, actions []loop.Action) {
		measured := metrics.Measured{QueueGroups: p.loop.QueueGroups(), VersionTokens: ev.VersionTokens, EnvironmentNS: ev.EnvironmentNS}
		run.Recorder.Observe(ev.Event, measured, actions)
		effects.finish(ev.Event)
		for _, a := range actions {
			effects.start(a)
			switch a.Kind {
			case loop.StartRollout:
				run.groups[a.Group] = struct{}{}
			case loop.GroupTrained, loop.GroupEnded:
				delete(run.groups, a.Group)
			}
		}
	}
	if err := p.play(); err != nil {
		return nil, err
	}
	if d := p.report.Difference; d != nil {
		return nil, fmt.Errorf("replay: the trace was recorded by %q under other rules, %v: resume it with that version of headway", run.Header.Program, d)
	}
	run.Ended, run.Encoder, run.Outstanding = p.ended, p.reader.Encoder(), effects.list()
	return run, nil
}

// subject is what an effect concerns: there is at most one under way for each.
type subject struct {
	kind  loop.ActionKind
	index int32 // slot or engine
}

// outstanding holds the effects under way, numbered in the order of their decision.
type outstanding struct {
	effects map[subject]numbered
	decided int
}

type numbered struct {
	order  int
	action loop.Action
}

func (o *outstanding) start(a loop.Action) {
	key := subject{kind: a.Kind}
	switch a.Kind {
	case loop.StartRollout:
		key.index = a.Slot
	case loop.StartTrainStep:
	case loop.LoadWeights, loop.SwitchWeights:
		key = subject{loop.LoadWeights, a.Engine}
	case loop.FinishRun:
		clear(o.effects)
		return
	default:
		return
	}
	o.decided++
	o.effects[key] = numbered{o.decided, a}
}

func (o *outstanding) finish(ev loop.Event) {
	switch ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		key := subject{loop.StartRollout, ev.Slot}
		if a := o.effects[key].action; a.Group == ev.Group && a.Sample == ev.Sample && a.Attempt == ev.Attempt {
			delete(o.effects, key)
		}
	case loop.TrainStepEnded, loop.TrainStepFailed, loop.LeaseReturned:
		key := subject{kind: loop.StartTrainStep}
		if a := o.effects[key].action; a.Lease == ev.Lease && a.Attempt == ev.Attempt {
			delete(o.effects, key)
		}
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed:
		key := subject{loop.LoadWeights, ev.Engine}
		if a := o.effects[key].action; a.Version == ev.Version && a.Attempt == ev.Attempt {
			delete(o.effects, key)
		}
	case loop.EngineLost:
		maps.DeleteFunc(o.effects, func(key subject, n numbered) bool {
			return key.kind != loop.StartTrainStep && n.action.Engine == ev.Engine
		})
	case loop.Recovered:
		clear(o.effects)
	}
}

func (o *outstanding) list() []loop.Action {
	all := slices.SortedFunc(maps.Values(o.effects), func(a, b numbered) int { return cmp.Compare(a.order, b.order) })
	actions := make([]loop.Action, len(all))
	for i, n := range all {
		actions[i] = n.action
	}
	return actions
}
