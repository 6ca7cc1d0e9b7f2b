package sim

import (
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// Review is a service that every finished rollout passes, and holds its slot until it has. The zero Review takes no time.
type Review struct {
	// Time of one rollout; nil for none.
	Time *workload.Times
	// NSPerToken is the time, in ns, that every token of the rollout adds: prompt, tools' outputs and response.
	NSPerToken float64
	// Workers is the number of rollouts served at once, the first to come first; 0 for no limit.
	Workers int
}

// none reports whether no rollout spends time in the review.
func (v *Review) none() bool { return v.Time.Zero() && v.NSPerToken == 0 }

// The reviews, in the order in which a rollout passes them.
const (
	byVerifier = iota
	byScorer
	reviewCount
)

// reviewer is a Review of a simulation: where its rollouts wait, how they are there, and whence its times are drawn.
type reviewer struct {
	*Review
	at        place
	waits, in state
	draw      workload.Source
}

func reviewersOf(cfg *Agents) [reviewCount]reviewer {
	return [reviewCount]reviewer{
		byVerifier: {&cfg.Verifier, atVerifier, waitsVerifier, judged, workload.NewSource(cfg.Seed, workload.StreamVerifier)},
		byScorer:   {&cfg.Scorer, atScorer, waitsScorer, scored, workload.NewSource(cfg.Seed, workload.StreamScorer)},
	}
}

// ns is how long an attempt of so many tokens takes in the review.
func (v *reviewer) ns(t workload.Turn, tokens int64) int64 {
	ns := int64(math.Round(v.NSPerToken * float64(tokens)))
	if !v.Time.Zero() {
		ns += v.Time.Draw(v.draw, t.Group, t.Sample, t.Attempt)
	}
	return ns
}

// toReview has a finished agent pass the reviews from one on; behind the last it is done.
func (r *runner) toReview(a *agent, from int) {
	for by := from; by < reviewCount; by++ {
		v := &r.agents.reviewers[by]
		if v.none() {
			continue
		}
		if r.enter(v.at, a, v.waits) {
			r.serve(v.at, a)
		}
		return
	}
	r.report(a, done)
}

// inReview has a reviewer serve an agent.
func (r *runner) inReview(a *agent, by int) {
	v := &r.agents.reviewers[by]
	r.wait(a, v.in, v.ns(a.turnOf(), a.read+int64(a.turnEnd)))
}

// endReview has an agent whom a reviewer has served pass the next review.
func (r *runner) endReview(a *agent, by int) {
	r.leave(r.agents.reviewers[by].at)
	r.toReview(a, by+1)
}
