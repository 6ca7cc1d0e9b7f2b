package experiment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// FlagError names a refused field as the flag that gives it.
func FlagError(err error) error {
	if field, is := errors.AsType[*workload.FieldError](err); is {
		err = fmt.Errorf("--%w", &workload.FieldError{Field: strings.ReplaceAll(field.Field, "_", "-"), Value: field.Value, Allowed: field.Allowed})
	}
	return failure.Usage("headway predict --help lists the flags", "%w", err)
}

// Input is the setting of a resolved document, its rates those of a
// simulation. The error blames the document.
func Input(document config.Config) (theory.Input, error) {
	document, err := document.ForSimulation()
	if err != nil {
		return theory.Input{}, err
	}
	lengths, err := document.LengthModel()
	if err != nil {
		return theory.Input{}, err
	}
	environment, err := document.EnvironmentTimes()
	if err != nil {
		return theory.Input{}, err
	}
	slots, batch := float64(document.Rollout.Concurrency), float64(document.Train.Batch)
	produced := document.DecodeThroughputTokensPerS() // v_R
	utilization := document.Modelled.Train.Utilization
	switch {
	case document.Modelled.Train.StepS > 0:
		utilization = produced * document.Modelled.Train.StepS / (batch * lengths.Mean())
	case document.Modelled.Train.ThroughputTokensPerS > 0:
		utilization = produced / document.Modelled.Train.ThroughputTokensPerS
	}
	in := theory.Input{
		ConcurrencyRollouts: slots,
		BatchRollouts:       batch,
		GroupSize:           document.Rollout.GroupSize,
		QueueFactor:         float64(document.QueueGroups()) / float64(document.BatchGroups()),
		Utilization:         utilization,
		Lengths:             lengths,
		Environment:         environment,
		DecodeTokensPerS:    produced / slots,
		Policy:              document.Queue.Policy,
		MaxStaleness:        document.Queue.MaxStaleness,
		Select:              document.Queue.Select,
		Start:               document.Rollout.Start,
		Acceptance:          document.Modelled.Filter.Acceptance,
		SyncTimeS:           syncTimeS(document),
		SyncMode:            document.Sync.Mode,
		SyncTrainer:         document.Sync.Trainer,
		SyncEvery:           document.Sync.Every,
	}
	if h := document.Hardware; h.GPUs > h.RolloutGPUs && h.RolloutGPUs > 0 {
		// β* of these GPUs, so that a lever that moves them starts from where they are.
		in.SpeedRatio = float64(h.RolloutGPUs) / float64(h.GPUs-h.RolloutGPUs) / utilization
	}
	if document.Queue.Policy == theory.PolicyThreshold {
		in.StalenessThreshold, in.PartialRollout = document.Queue.StalenessThreshold, document.Sync.Mode == theory.SyncRestart
	}
	if document.Schedule == theory.PolicySynchronous {
		in.Policy = theory.PolicySynchronous
	}
	return in.WithDefaults(), nil
}

// syncTimeS is the time of a sync as the closed form has it: in flight the engines
// generate through all of it, loading included.
func syncTimeS(document config.Config) float64 {
	if document.Sync.Mode == "in_flight" {
		return document.Modelled.Sync.TimeS + document.Modelled.Sync.LoadS
	}
	return document.Modelled.Sync.TimeS
}

// Case is one simulation to make.
type Case struct {
	// Set are the overrides that make it, as KEY=VALUE, grid keys last.
	set      []override
	Document config.Config
	// Setting is what the closed form is asked.
	Setting theory.Input
	// bias asks for the comparison of what is trained with what is started.
	bias bool
	// automatic: the document does not say how long the warm-up is.
	automatic bool
}

// keysOfInput are the document's keys behind the closed form's fields.
var keysOfInput = map[string]string{"concurrency": "rollout.concurrency", "batch": "train.batch", "group": "rollout.group_size", "queue_factor": "queue.factor",
	"utilization": "the utilization that modelled.train.utilization or the speeds of rollout and train come to", "step_time": "the train step that modelled.train.step_s, or utilization and speeds, come to",
	"sync_time": "modelled.sync.time_s", "acceptance": "modelled.filter.acceptance"}

// KeyError names what no simulation could be of by the document's keys.
func KeyError(err error) error {
	if field, is := errors.AsType[*workload.FieldError](err); is && keysOfInput[field.Field] != "" {
		err = &workload.FieldError{Field: keysOfInput[field.Field], Value: field.Value, Allowed: field.Allowed}
	}
	return failure.Usage("headway config FILE prints every key as it was resolved", "%w", err)
}

// FlagsHint is how a wrong command line is put right.
const FlagsHint = "headway simulate --help lists the flags"
