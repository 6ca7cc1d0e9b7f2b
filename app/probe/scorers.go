package probe

import (
	"context"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/doctor"
)

// askScorers has every server of scoring.servers score a few tokens, for a policy of so many token ids; 0 for unknown.
func askScorers(ctx context.Context, document config.Config, vocabulary int) []doctor.Scorer {
	if !document.Scores() {
		return nil
	}
	out := make([]doctor.Scorer, len(document.Scoring.Servers))
	pool, err := parts.ScorerOf(document, vocabulary)
	if err != nil {
		for i := range out {
			out[i].Err = problemOf(err)
		}
		return out
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	for i, f := range pool.Probe(ctx) {
		out[i].Context = max(f.Context-f.Spare, 0)
		if f.Err != nil {
			out[i].Err = f.Err.Error()
		}
		if f.Narrow != nil {
			out[i].Narrow = f.Narrow.Error()
		}
	}
	return out
}
