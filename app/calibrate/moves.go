package calibrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	measure "github.com/headway-rl/headway/predict/calibrate"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/theory"
)

// Simulated steps of a prediction: as many as bring some rollouts, between two bounds.
const (
	movedRollouts = 100_000
	movedStepsMin = 30
	movedStepsMax = 300
)

// warmTimes is how many times the rollouts under way pass before a period counts.
const warmTimes = 3

// Moves predicts the time between two updates, and how far each constant moves it over its interval. The period is the
// simulator's, always with the same random numbers. told is what is predicted next.
func Moves(ctx context.Context, f measure.Findings, told func(name string)) (measure.Findings, error) {
	var err error
	f.Left, f.Notes = append([]measure.Left{}, f.Left...), append([]string{}, f.Notes...) // no null in JSON
	if f.PeriodS, err = period(f.Whole()); err != nil {
		return f, failure.Run("write the missing keys into the document that --out writes", "what was found is no document that can be simulated: %w", err)
	}
	for i, c := range f.Constants {
		if c.Key == "" || c.Text != "" || c.Low == c.High {
			continue
		}
		if ctx.Err() != nil {
			return f, errors.New("interrupted: nothing was written")
		}
		told(c.Name)
		low, lowErr := period(f.At(c.Key, false))
		high, highErr := period(f.At(c.Key, true))
		if lowErr != nil || highErr != nil {
			f.Notes = append(f.Notes, fmt.Sprintf("how far %s moves the step could not be predicted: %v", c.Name, errors.Join(lowErr, highErr)))
			continue
		}
		least, most := min(low, high, f.PeriodS), max(low, high, f.PeriodS)
		f.Constants[i].Moves = &measure.Moves{LeastS: least, MostS: most, Share: (most - least) / f.PeriodS}
	}
	return f, nil
}

// period is the mean time between two updates of a document, in seconds.
func period(document []byte) (float64, error) {
	parsed, err := config.Parse("the findings", document)
	if err != nil {
		return 0, err
	}
	resolved := parsed.WithDefaults()
	if err := resolved.Validate(); err != nil {
		return 0, err
	}
	simulated, err := resolved.ForSimulation()
	if err != nil {
		return 0, err
	}
	batch := max(simulated.Train.Batch, 1)
	steps := min(max(movedRollouts/batch, movedStepsMin), movedStepsMax)
	// The first rollouts begin together: some times as many as are under way must have passed.
	simulated.Steps.Measured, simulated.Steps.Warmup = steps, steps/5+warmTimes*simulated.Rollout.Concurrency/batch
	setting, err := experiment.Input(simulated)
	if err != nil {
		return 0, err
	}
	made, err := experiment.Simulate(experiment.Case{Document: simulated, Setting: setting}, theory.Prediction{}, nil, nil)
	if err != nil {
		return 0, err
	}
	return made.Summary.PeriodS.Mean, nil
}
