package doctor

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

const (
	keyCap   = "modelled.length.cap_tokens"
	keyBatch = "train.batch"
)

const (
	// truncatedTold and truncatedMuch are the shares of rollouts at the length cap from which on it is worth knowing, and a warning.
	truncatedTold = 0.01
	truncatedMuch = 0.1
	// staleEnough is the mean staleness from which on a larger batch is weighed against it.
	staleEnough = 2
)

var lengthChecks = []check{
	{Kind{
		Code: "length-cap", Severities: []Severity{Warning, Info}, Keys: []string{keyCap},
		When:  "at least 1 % of rollouts are cut at the length cap (above 10 % a warning): what the cap does to M, and what a lower one would. The rule of thumb is to watch the tail; it fails where long answers are the ones that matter, since a cut one is scored as it stands",
		Known: "the modelled lengths: P(L ≥ cap), and M = E[longest of S]/E[L] at the cap, at three quarters and at half of it",
	}, (*examination).lengthCap},
	{Kind{
		Code: "barrier", Severities: []Severity{Warning, Info}, Keys: []string{keySchedule},
		When:  "`schedule: synchronous`: every step waits for the longest rollout of its batch; a warning where nothing caps how long that can be",
		Known: "order statistics of the modelled lengths, E[longest of B]/E[L], where slots cover the batch. Fails as a price where training, not generation, takes the time",
	}, (*examination).barrier},
	{Kind{
		Code: "batch-staleness", Severities: []Severity{Info}, Keys: []string{keyBatch},
		When:  "policy `drop`, a mean staleness of at least 2: what twice the batch would make of it, at its price. The rule of thumb is to trade batch against staleness; it fails where updates, not samples, are what learning needs: the noise-adjusted time of an update, T/√B, rises",
		Known: "closed form at twice the batch, C, S, q and both throughputs held; with siblings that correlate by r, B counts as B/(1+(S−1)r)",
	}, (*examination).batchStaleness},
}

func (e *examination) lengthCap() {
	limit := e.document.Modelled.Length.CapTokens
	if limit == 0 || e.setting == nil || !e.alikePrompts() {
		return
	}
	lengths, s := e.setting.Lengths, e.rules.GroupSize
	share := 1 - lengths.CDF(float64(limit)-0.5)
	if share < truncatedTold {
		return
	}
	severity, do := Info, "nothing, if cut answers can be spared"
	if share > truncatedMuch {
		severity, do = Warning, fmt.Sprintf("a higher %s, or shorter answers: rewards of cut ones say little", keyCap)
	}
	f := e.add(severity, keyCap, Arithmetic)
	here := lengths.TailMultiplier(s)
	lower, lowerCut := lengths.Capped(limit * 3 / 4)
	half, halfCut := lengths.Capped(limit / 2)
	f.What = fmt.Sprintf("%s of rollouts are cut at %d tokens; the longest of %d siblings is %s times a mean one", percent(share), limit, s, short(here))
	f.Why = fmt.Sprintf("the cap is the lever on the tail: at %d tokens M would be %s with %s cut, at %d %s with %s",
		limit*3/4, short(lower.TailMultiplier(s)), percent(lowerCut), limit/2, short(half.TailMultiplier(s)), percent(halfCut))
	f.Do = do
	f.Figures = Figures{{"truncated_share", share}, {"tail_multiplier", here}, {"tail_multiplier_at_three_quarters", lower.TailMultiplier(s)}, {"tail_multiplier_at_half", half.TailMultiplier(s)},
		{"truncated_share_at_half", halfCut}}
}

func (e *examination) barrier() {
	batch := e.batch()
	if e.rules.Policy != loop.PolicySynchronous || e.setting == nil || !e.alikePrompts() || e.rules.Concurrency() < batch || e.rules.ExtraGroups > 0 || e.rules.Redundancy > 0 {
		return
	}
	times := e.setting.Lengths.MeanMax(batch) / e.setting.Lengths.Mean()
	severity, do := Info, "an asynchronous schedule, a length cap, or oversampling, which is biased to short answers"
	open := math.IsInf(e.longestS(), 1) || e.document.Modelled.Length.CapTokens == 0 && e.document.Modelled.Length.Kind != "fixed" && e.document.Modelled.Length.Kind != "empirical"
	if open {
		severity, do = Warning, fmt.Sprintf("%s and modelled.environment.cap_s, so that one straggler cannot hold the whole step", keyCap)
	}
	f := e.add(severity, keySchedule, ClosedForm)
	f.What = fmt.Sprintf("every step waits for the longest of %d rollouts, which takes %s times as long as a mean one", batch, short(times))
	f.Why = "under schedule: synchronous a batch is trained whole, and slots of finished rollouts stand empty meanwhile"
	if open {
		f.Why += "; nothing caps how long it can take"
	}
	f.Do = do
	f.Figures = Figures{{"longest_of_batch_ratio", times}, {"slots_busy_share_max", 1 / times}}
}

func (e *examination) batchStaleness() {
	p, ok := e.predict()
	if !ok || e.rules.Policy != loop.PolicyDrop || !e.plain() || e.rules.Hold > 0 {
		return
	}
	mean, known := p.Corrected.Mean.Value()
	if !known || mean < staleEnough {
		return
	}
	for _, lever := range p.Levers {
		after, known := lever.CorrectedMean.Value()
		period, knownPeriod := lever.PeriodRatio.Value()
		if lever.Name != "batch" || !known || !knownPeriod || after >= mean {
			continue
		}
		adjusted := period / math.Sqrt2
		f := e.add(Info, keyBatch, ClosedForm)
		f.What = fmt.Sprintf("twice the batch would bring the mean staleness from %s to %s versions", short(mean), short(after))
		f.Why = fmt.Sprintf("as many rollouts are in flight, and fewer batches are made of them; an update takes %s times as long, and %s times by its noise, T/√B", short(period), short(adjusted))
		f.Do = "weigh both: worth it where staleness is what limits learning, not where updates do"
		f.Figures = Figures{{"staleness_mean_versions", mean}, {"staleness_mean_twice_batch_versions", after}, {"period_ratio", period}, {"noise_adjusted_ratio", adjusted}}
	}
}
