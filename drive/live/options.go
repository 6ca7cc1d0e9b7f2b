package live

import (
	"errors"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// Options is everything a runtime is made of. All fields are needed unless they say otherwise.
type Options struct {
	// Header begins the trace; its Loop holds the rules. Ignored when Resume is set.
	Header trace.Header
	// Engines in the order of Header.Loop.EngineSlots, each with that many slots.
	// Those of cells in other processes are Elsewhere.
	Engines     []port.Engine
	Environment port.Environment
	Trainer     port.Trainer
	Weights     port.Weights
	Store       port.Store
	// Scorer scores rollouts before they end, which keep their slots meanwhile. Store then has to keep side channels
	// (port.Blobs). Nil scores none.
	Scorer port.Scorer
	// Clock returns nanoseconds since the run started, never falling.
	Clock func() int64
	// Notes are appended after the header, before the first event.
	Notes []Note
	// Resume goes on with a run; nil starts one.
	Resume *Resume
	// OnStep, if not nil, is called by the goroutine that owns the loop after every train step. It must not block.
	OnStep func(StepDone)
	// Observe, if not nil, is called by that goroutine with every event, its measurements and the actions that
	// followed. All of them are only lent. Observe must not block.
	Observe func(ev *loop.Event, m *metrics.Measured, actions []loop.Action)
	// OnSync, if not nil, is called by the same goroutine after every completed weight sync. It must not block.
	OnSync func(SyncDone)
	// OnBatch, if not nil, is called with every batch before it is trained on, by the
	// goroutine that trains. It must not change the batch.
	OnBatch func(port.Batch)
	// Logf, if not nil, is told of failures that the run survives, by several goroutines, but one at a time.
	Logf func(format string, args ...any)
	// OnBroken, if not nil, is called when an invariant of the loop is broken and
	// the run has stopped itself. Its bundle is JSON: the error, the last events,
	// the loop's state.
	OnBroken func(bundle []byte)
	// KeepVersions is how many versions before the newest served one stay on disk; 0 means 3.
	KeepVersions int
	// SnapshotSteps and SnapshotEvents are the most train steps and events between two snapshots
	// of the run; 0 means SnapshotStepsDefault and SnapshotEventsDefault.
	SnapshotSteps, SnapshotEvents int
	// OnDiskFull, if not nil, is called when the run begins to wait for room in its store, with the error of the failed
	// write. It is called with nil when the run no longer waits. Any goroutine may call it, one at a time; it must not
	// block.
	OnDiskFull func(cause error)
	// RejoinAfter is how long after the loop has lost an engine it is tried again: it then loads
	// the newest version in full. The pause doubles, up to 60 times this, until the engine
	// serves. 0 leaves a lost engine out for good.
	RejoinAfter time.Duration
	// Fleet starts and stops engines, all of Engines: the loop begins with Config.EnginesStart of them, and
	// one that is lost is brought back by it. Nil where all engines are there by themselves.
	Fleet port.Fleet
	// AcquireWithin and ReleaseWithin are how long Fleet may take to answer; 0 means
	// AcquireWithinDefault and ReleaseWithinDefault.
	AcquireWithin, ReleaseWithin time.Duration
	// Losses of engines that are planned, to rehearse them; nil for none.
	Losses []EngineLoss
	// Patient makes a run that has no progress wait instead of ending as stalled. The run waits for a process outside
	// that may still come: an environment's workers, an engine, a trainer. It is implied by Config.TrainerAsks.
	Patient bool
	// Cells are the names of the cells in other processes, by the number that Header.Loop.EngineCells has, from 1. A run that
	// has some is Patient. Receive takes their events.
	Cells []string
	// Present is the time for which this process could hear cells, in nanoseconds, never falling: leases of cells run out by it.
	// Nil means Clock.
	Present func() int64
	// Timer starts a timer that sends once after d, and returns what stops it. It must
	// go by the same time as Clock. Nil means time.NewTimer.
	Timer func(d time.Duration) (fired <-chan time.Time, stop func() bool)
}

// Note is a named value in the trace.
type Note struct {
	Name string
	Data any
}

// StepDone is what is known after a train step.
type StepDone struct {
	// Point is the step in the series, and Attribution the origin of its staleness and of the idle time before it.
	// Report holds the trainer's words, Status the loop's state.
	Point       metrics.Step
	Attribution attribution.Step
	Report      port.StepReport
	// Found is true where the step was found published. Report is zero then.
	Found  bool
	Status loop.Status
	// Rates are what entered and left the queue over the last train periods.
	Rates Rates
}

// Result is what a run ended with.
type Result struct {
	// Reason the loop finished by.
	Reason loop.Reason
	// Status and Summary at the end; Series has one point a step. Attribution is that of the measured
	// window.
	Status      loop.Status
	Summary     metrics.Summary
	Series      []metrics.Step
	Attribution attribution.Summary
}

// ErrLogLost is wrapped by the error of a run whose log does not reach to what has been published. Nothing was changed.
var ErrLogLost = errors.New("the event log has lost its end")

// ErrPayloadsLost is wrapped by the error of a run whose store lacks payloads that its log counts. Nothing was changed.
var ErrPayloadsLost = errors.New("the store has lost payloads")

// ErrStalled is wrapped by the error of a run in which train steps have ceased.
var ErrStalled = errors.New("the run has stalled")

// ErrTrainer is wrapped by the error of a run whose train step failed its last attempt.
var ErrTrainer = errors.New("the train step failed every attempt")
