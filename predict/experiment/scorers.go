package experiment

import (
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// scorersText says how many rollouts a second a pool of scorers passes, by the closed form of a queue of that many
// servers; "" where it has no limit.
func scorersText(d config.Config, in theory.Input) string {
	pool, limited := scorersOf(d, in)
	if !limited {
		return ""
	}
	f := pool.Figures()
	return fmt.Sprintf("a pool of %s passes at most %s rollouts a second, and %s while every slot is in use: a score takes %s s, and a rollout waits %s s for it (closed form, exponential times)",
		report.Counted(pool.Servers, "scorer"), report.Figure(f.MostPerS, 2), report.Figure(f.RolloutsPerS, 2), report.Figure(pool.ServiceS, 2), report.Figure(f.WaitS, 2))
}

// scorersOf are the scorers of a document as a pool behind the slots of a setting; limited says whether they have a limit.
func scorersOf(d config.Config, in theory.Input) (pool theory.Pool, limited bool) {
	if d.Modelled.Scorer.Concurrency == 0 || in.Lengths == nil || in.DecodeTokensPerS == 0 {
		return pool, false
	}
	pool = theory.Pool{Slots: int(in.ConcurrencyRollouts), Servers: d.Modelled.Scorer.Concurrency,
		AwayS: in.Lengths.Mean() / in.DecodeTokensPerS, ServiceS: d.ScoreMeanS(in.Lengths.Mean())}
	d.Modelled.Scorer = config.ModelledScorer{}
	if outside, err := d.OutsideModel(); err == nil && !outside.Zero() {
		pool.AwayS += outside.Mean() / 1e9
	}
	return pool, pool.ServiceS > 0
}
