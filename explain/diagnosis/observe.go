package diagnosis

import (
	"encoding/json"
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// Learned is what the trainer said of one step.
type Learned struct {
	Step loop.Version
	// ClipFraction is the share of tokens outside the band, MeanLogRatio the mean of the trainer's minus the
	// rollout's log-probability, EffectiveSampleSize a share.
	// All are 0 where it did not say.
	ClipFraction, MeanLogRatio, EffectiveSampleSize float64
	// Forward is a verdict on its forward pass, nil where the step has none.
	Forward *Forward
}

// Forward says whether a trainer's log-probs of a batch agree with the engines'.
type Forward struct {
	Agrees bool
	// Says is the verdict in a sentence, with the likely cause.
	Says string
}

// forwards are the verdicts of a run: how many, how many that disagree, and the newest.
type forwards struct {
	judged, disagree int
	newest           Forward
}

// observer folds the events of one run of ours into what a diagnosis needs, in
// bounded memory but for metrics' series. Its methods are for one goroutine.
type observer struct {
	header   trace.Header
	document config.Config
	// documented: the header's document could be read.
	documented  bool
	recorder    *metrics.Recorder
	tally       *tally
	attribution *attribution.Observer
	attendance  attendance
	deliveries  deliveries
	standstill  standstill
	from        loop.Version
	ledger      loop.Ledger
	// unbalanced is the first event after which the ledger did not add up, 0 for none.
	unbalanced int64
	events     int64
	before     *before
	engines    []string
	// steered is what the loop says of its controller after the event that comes next; nil where it does not.
	steered  *loop.ControlStatus
	forwards forwards
	// silences counts how often nothing was measured of a target, over the whole run: a wait unsettles what was before it.
	silences int64
}

// before is what was predicted before the run.
type before struct {
	StalenessMean *float64 `json:"staleness_mean"`
	PQS           *float64 `json:"pqs"`
	IQS           *float64 `json:"iqs"`
	PeriodS       *float64 `json:"period_s"`
}

// newObserver returns an observer of the run that a trace's header begins. Its window
// begins after the step from.
func newObserver(h trace.Header, from loop.Version) (*observer, error) {
	if err := h.Loop.Validate(); err != nil {
		return nil, fmt.Errorf("the header holds no rules a loop can run by: %w", err)
	}
	o := &observer{header: h, recorder: metrics.NewRecorder(h.Loop), tally: newTally(h.Loop), attribution: attribution.New(h.Loop), from: from}
	o.recorder.Warmup, o.attribution.Warmup = from, from
	o.recorder.Beside = o.attribution
	o.attendance.asks, o.deliveries = h.Loop.TrainerAsks, newDeliveries(&h.Loop)
	if h.Config == "" {
		return o, nil
	}
	raw, err := config.ParseRecorded("the run's document", []byte(h.Config))
	if err == nil {
		o.document, err = raw.Resolve()
	}
	o.documented = err == nil
	for _, e := range o.document.Engines {
		o.engines = append(o.engines, e.Name)
	}
	return o, nil
}

// Observe takes an event with how many groups the queue holds and the ledger after it,
// and the actions that followed from it.
func (o *observer) Observe(ev *trace.Event, queueGroups int, ledger loop.Ledger, actions []loop.Action) {
	o.events++
	o.ledger = ledger
	if o.unbalanced == 0 && !ledger.Balanced() {
		o.unbalanced = o.events
	}
	measured := metrics.Measured{QueueGroups: queueGroups, VersionTokens: ev.VersionTokens, EnvironmentNS: ev.EnvironmentNS,
		Spans: ev.Spans, Resumed: ev.Resumed, StateLag: ev.StateLag, Control: o.steered}
	o.tally.fleet.to(ev.Time, o.attribution.Engines())
	o.recorder.ObserveEvent(&ev.Event, &measured, actions)
	o.tally.observe(ev, actions)
	o.attendance.observe(ev, actions, o.counts)
	o.deliveries.observe(ev, actions, o.counts)
	o.standstill.observe(ev, actions, o.attribution.Running(), o.counts)
	for i := range actions {
		if a := &actions[i]; a.Kind == loop.ControlChanged && a.Control == loop.ControlSilent {
			o.silences++
		}
	}
	if ev.Kind == loop.TrainStepEnded && ev.Version == o.from {
		o.tally.fleet.reset()
	}
}

// Learn takes what the trainer said of the step that ended last.
func (o *observer) Learn(l Learned) {
	if l.Forward != nil {
		o.forwards.judged, o.forwards.newest = o.forwards.judged+1, *l.Forward
		if !l.Forward.Agrees {
			o.forwards.disagree++
		}
	}
	t := o.tally
	if n := len(t.rows); n > 0 && t.steps == 1 && int(l.Step) == n && l.EffectiveSampleSize != 0 {
		r := &t.rows[n-1]
		r.learned, r.clip, r.logRatio, r.ess = true, l.ClipFraction, l.MeanLogRatio, l.EffectiveSampleSize
	}
}

// Predicted takes the data of a trace's prediction note: what was expected before the run.
func (o *observer) Predicted(data []byte) error {
	var b before
	if err := json.Unmarshal(data, &b); err != nil {
		return fmt.Errorf("unreadable prediction: %w", err)
	}
	o.before = &b
	return nil
}

// Version is the version the run has reached.
func (o *observer) Version() loop.Version { return o.recorder.Version() }
