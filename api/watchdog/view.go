package watchdog

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// View is what is known of a run at a moment. Times are seconds; how long ago and how
// long since, never dates.
type View struct {
	// NowS is the time, by a clock that never goes back and stands still while the control plane cannot answer;
	// only differences count.
	NowS float64
	// Status is the control plane's. Its Stall is not looked at.
	Status protocol.Status
	// RemoteWorkers: rollouts are played by workers in other processes.
	RemoteWorkers bool
	// BatchS is how long a batch has been at the trainer, or has waited for one; 0 if there is none.
	BatchS float64
	// Holding: admission waits for the next switch of weights.
	Holding bool
	// SyncTarget is the version that is being brought to the engines, loop.NoVersion for none. Together: they
	// switch to it at one moment, when all have loaded it.
	SyncTarget loop.Version
	Together   bool
	// Engines has what is known beside Status.Engines, in their order; it may be empty.
	Engines []Engine
	// PeriodS is the usual time between two train steps and RolloutS that of a rollout, its
	// environment's time included; 0 while they are not known.
	PeriodS, RolloutS float64
}

// Engine is what is known of an engine beside its status.
type Engine struct {
	// Oldest names the rollout attempt that has been at it longest (g12-s3-a1), for OldestS; empty if there is none.
	Oldest  string
	OldestS float64
	// Error is what it was lost by; empty if it was not, or if that is not known.
	Error string
}

// Options say when something is a stall.
type Options struct {
	// AfterS is how long nothing may progress. A run whose steps or rollouts are known to take
	// longer is given three times as long as they do.
	AfterS float64
	// LeaseS and ClaimS are how long a trainer's lease and a worker's claim last without a word.
	LeaseS, ClaimS float64
}

// usual is how many times the usual time something may take before it is worth a word.
const usual = 3

// stopFactor is how many times the patience a stall may last before Watchdog says that the run
// had better end.
const stopFactor = 10

// patience is how long a run may make no progress.
func (o Options) patience(v View) float64 {
	return max(o.AfterS, usual*v.PeriodS, usual*v.RolloutS)
}
