package study

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// StalenessPrice is what a train step costs at a lag, on hardware that is simulated.
type StalenessPrice struct {
	Lag int `json:"lag"`
	// Period is the mean time between two versions over that of a train step alone.
	Period float64 `json:"period_train_steps"`
	// Staleness is the mean that the simulation came to, in versions; the bound is the lag.
	Staleness float64 `json:"staleness"`
}

// StalenessHardware is a workload on which staleness is bought: the same slots decode at the same
// speed whatever the lag, as many as the lag has use for.
type StalenessHardware struct {
	// Name and Note for people.
	Name string `json:"name"`
	Note string `json:"note"`
	// Prices are by lag, in the order of the options.
	Prices []StalenessPrice `json:"prices"`
	// slow is a group's mean generation time over the train step.
	slow float64
}

// Of the hardware: lengths as the other studies have them.
const (
	priceTailness = 50
	priceTail     = 2.210 // M of 8 lognormal lengths of that tailness
	priceSlots    = 17    // C/B: what lag 16 can use
	priceWarmup   = 60
	priceMeasured = 240
)

// stalenessHardware are the two that are priced.
func stalenessHardware() []StalenessHardware {
	return []StalenessHardware{
		{Name: "rollouts of 2 train steps", slow: 2, Note: "a group takes 2 train steps from its first token to its last, as single answers do"},
		{Name: "rollouts of 8 train steps", slow: 8, Note: "a group takes 8 train steps, as long reasoning and agents with tools do"},
	}
}

// bounded opens a group while the mean staleness stays within the lag; lag 0 is the synchronous
// schedule, whose trainer waits for the last of the batch's own rollouts.
func bounded(lag int) Rule {
	return Rule{fmt.Sprintf("bounded %d", lag), func(c *loop.Config, _ Cell) {
		c.Policy, c.Eta, c.QueueGroups = loop.PolicyBounded, float64(lag), (lag+1)*c.BatchGroups
		if lag == 0 {
			c.Policy = loop.PolicySynchronous
		}
	}}
}

// prices simulates what a step costs at each lag, over that many train steps.
func prices(ctx context.Context, lags []int, measured int) ([]StalenessHardware, error) {
	all := stalenessHardware()
	var trials []Trial
	for _, h := range all {
		for _, lag := range lags {
			slots := float64(max(priceSlots, lag+1))
			trials = append(trials, Trial{Rule: bounded(lag), Seed: 1, Warmup: min(priceWarmup, measured), Measured: measured,
				Cell: Cell{Rho: priceTail * slots / h.slow, Tailness: priceTailness, Load: slots, GroupSize: stalenessGroup, Concurrency: int(slots) * stalenessBatch}})
		}
	}
	figures, err := Simulator{}.Run(ctx, trials)
	if err != nil {
		return nil, err
	}
	for i, f := range figures {
		if f.Failed != "" {
			return nil, fmt.Errorf("study: %s: %s", trials[i].key(), f.Failed)
		}
		h := &all[i/len(lags)]
		h.Prices = append(h.Prices, StalenessPrice{Lag: lags[i%len(lags)], Period: f.Period, Staleness: f.Staleness})
	}
	return all, nil
}
