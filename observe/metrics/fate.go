package metrics

import "github.com/headway-rl/headway/loop"

// Waste says what became of the response tokens made, by how their rollout's
// attempt ended within the window. Tokens of attempts that have not ended, and of
// lost engines whose last word is missing, are in none.
type Waste struct {
	// TrainedTokens were trained at least once; each counts once.
	TrainedTokens int64 `json:"trained_tokens"`
	// EvictedTokens made room in a full queue, DiscardedTokens exceeded the staleness budget,
	// FilteredTokens were of groups that teach nothing.
	EvictedTokens   int64 `json:"evicted_tokens"`
	DiscardedTokens int64 `json:"discarded_tokens"`
	FilteredTokens  int64 `json:"filtered_tokens"`
	// PrunedTokens were made by rollouts that a rule on the rollout stopped, and CancelledTokens by
	// those no longer wanted. FailedTokens were made by rollouts that failed, or whose group did.
	PrunedTokens    int64 `json:"pruned_tokens"`
	CancelledTokens int64 `json:"cancelled_tokens"`
	FailedTokens    int64 `json:"failed_tokens"`
	// WastedShare is the share of all these that was not trained.
	WastedShare float64 `json:"wasted_share"`
	// GroupsEnded counts groups by how they ended.
	GroupsEnded GroupsEnded `json:"groups_ended"`
	// PrunedRollouts, RedundantRollouts (cancelled because their group had enough) and those of
	// surplus groups (cancelled because the batch had enough), with the groups themselves.
	PrunedRollouts    int64 `json:"pruned_rollouts"`
	RedundantRollouts int64 `json:"redundant_rollouts"`
	SurplusGroups     int64 `json:"surplus_groups"`
	SurplusRollouts   int64 `json:"surplus_rollouts"`
}

// GroupsEnded counts groups by how they ended.
type GroupsEnded struct {
	Trained   int64 `json:"trained"`
	Evicted   int64 `json:"evicted"`
	Discarded int64 `json:"discarded"`
	Filtered  int64 `json:"filtered"`
	Pruned    int64 `json:"pruned"`
	Cancelled int64 `json:"cancelled"`
	Failed    int64 `json:"failed"`
}

// Partial says what interruptions and switches of weights do to rollouts.
type Partial struct {
	// Interruptions is how often a rollout was taken out of its slot with its tokens, Resumed how
	// often one was put back. LimitedRollouts could not be, as often interrupted as may be.
	Interruptions   int64 `json:"interruptions"`
	Resumed         int64 `json:"resumed"`
	LimitedRollouts int64 `json:"limited_rollouts"`
	// Backlog is how many stand interrupted: over time, at most, and at the end.
	BacklogMean float64 `json:"backlog_mean"`
	BacklogMax  int64   `json:"backlog_max"`
	BacklogEnd  int64   `json:"backlog_end"`
	// ResumedRatio is the share of scored rollouts that had been interrupted with tokens. A rollout
	// has one span more than interruptions.
	ResumedRatio float64 `json:"resumed_ratio"`
	SpansMean    float64 `json:"spans_mean"`
	SpansMax     int64   `json:"spans_max"`
	// VersionSpansMean and VersionSpansMax count runs of tokens of one version in a scored
	// rollout; 0 where the driver does not say.
	VersionSpansMean float64 `json:"version_spans_mean"`
	VersionSpansMax  int64   `json:"version_spans_max"`
	// StateLagMean and StateLagMax are by how many versions the environment's state of a resumed
	// rollout was older than what it was resumed under. RewardResumed and RewardFresh are the mean
	// rewards of resumed and other rollouts of complete groups; 0 where there is none.
	StateLagMean  float64 `json:"state_lag_mean"`
	StateLagMax   int64   `json:"state_lag_max"`
	RewardResumed float64 `json:"reward_resumed"`
	RewardFresh   float64 `json:"reward_fresh"`
	// PartialRollouts are trained rollouts between whose start and end the version served changed,
	// interrupted for it or not. PartialRatio is their share, VersionSpanMax the largest such change.
	// Under PolicyReplay a rollout counts once for each step on it.
	PartialRollouts int64   `json:"partial_rollouts"`
	PartialRatio    float64 `json:"partial_ratio"`
	VersionSpanMax  int64   `json:"version_span_max"`
	// StaleGroups and StaleRollouts were trained after a weight sync that followed their end:
	// staleness by the last version, as verl counts it.
	StaleGroups   int64 `json:"stale_groups"`
	StaleRollouts int64 `json:"stale_rollouts"`
}

// Filters is the share of groups that each filter let pass of those that reached it, in the order
// in which they are applied. It is 1 where there is none.
type Filters struct {
	Verdict       float64 `json:"verdict"`
	ZeroAdvantage float64 `json:"zero_advantage"`
	SolveRate     float64 `json:"solve_rate"`
}

// Reuse is how often a group had been trained when it was given up.
type Reuse struct {
	Mean float64 `json:"mean"`
	Max  int64   `json:"max"`
}

// Signal says what complete groups have to teach, filtered ones included.
type Signal struct {
	// SolveRate is the share of their rollouts that were solved. AllSolvedShare and
	// NoneSolvedShare are of groups; all are 0 where nothing at all was solved, as where
	// the environment never says so.
	SolveRate       float64 `json:"solve_rate"`
	AllSolvedShare  float64 `json:"all_solved_share"`
	NoneSolvedShare float64 `json:"none_solved_share"`
}

// summary turns the sums into what is reported.
func (w *waste) summary() Waste {
	t, g := &w.tokens, &w.groups
	s := Waste{
		TrainedTokens: t[loop.EndTrained], EvictedTokens: t[loop.EndEvicted], DiscardedTokens: t[loop.EndDiscarded],
		FilteredTokens: t[loop.EndFiltered], PrunedTokens: t[loop.EndPruned], CancelledTokens: t[loop.EndCancelled], FailedTokens: t[loop.EndFailed],
		GroupsEnded: GroupsEnded{g[loop.EndTrained], g[loop.EndEvicted], g[loop.EndDiscarded], g[loop.EndFiltered],
			g[loop.EndPruned], g[loop.EndCancelled], g[loop.EndFailed]},
		PrunedRollouts: w.prunedRollouts, RedundantRollouts: w.redundantRollouts, SurplusGroups: w.surplusGroups, SurplusRollouts: w.surplusRollouts,
	}
	all := int64(0)
	for _, n := range t {
		all += n
	}
	s.WastedShare = ratio(all-s.TrainedTokens, all)
	return s
}

func (w *window) partialSummary(span int64, backlog int) Partial {
	p := &w.partial
	s := Partial{
		Interruptions: p.interruptions, Resumed: p.resumed, LimitedRollouts: p.limited,
		BacklogMean: ratio(p.backlogNS, span), BacklogMax: int64(p.backlogMax), BacklogEnd: int64(backlog),
		ResumedRatio:    ratio(p.rollouts, w.sampled),
		PartialRollouts: p.spanning, PartialRatio: ratio(p.spanning, w.rollouts), VersionSpanMax: p.spanMax,
		StaleGroups: p.staleGroups, StaleRollouts: p.staleRollouts,
	}
	s.VersionSpansMean, s.VersionSpansMax = ratio(p.spans, p.spanned), p.spansMax
	s.StateLagMean, s.StateLagMax = ratio(p.stateLag, p.rollouts), p.stateLagMax
	s.RewardResumed = p.resumedReward / float64(max(p.resumedRollouts, 1))
	s.RewardFresh = p.freshReward / float64(max(p.freshRollouts, 1))
	if w.sampled > 0 {
		s.SpansMean, s.SpansMax = 1+ratio(p.interrupted, w.sampled), 1+p.interruptedMax
	}
	return s
}

// filters follows the groups through the filters.
func (w *window) filters() Filters {
	left, f := w.ready, Filters{1, 1, 1}
	for _, filter := range [...]struct {
		passed  *float64
		refused int64
	}{{&f.Verdict, w.waste.rejected}, {&f.ZeroAdvantage, w.waste.zeroAdvantage}, {&f.SolveRate, w.waste.solveRate}} {
		if left > 0 {
			*filter.passed = 1 - ratio(filter.refused, left)
		}
		left -= filter.refused
	}
	return f
}

func (s *signal) summary() Signal {
	if s.solved == 0 {
		return Signal{}
	}
	return Signal{ratio(s.solved, s.rollouts), ratio(s.allSolved, s.groups), ratio(s.noneSolved, s.groups)}
}
