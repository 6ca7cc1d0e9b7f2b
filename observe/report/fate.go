package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/observe/metrics"
)

// WasteRows says what became of the response tokens made; nil if none was.
func WasteRows(s metrics.Summary) []Row {
	w := s.Waste
	ends := []struct {
		name   string
		tokens int64
		note   string
	}{
		{"trained", w.TrainedTokens, fmt.Sprintf("%s groups", Count(w.GroupsEnded.Trained))},
		{"evicted", w.EvictedTokens, fmt.Sprintf("%s groups; the queue was full", Count(w.GroupsEnded.Evicted))},
		{"discarded", w.DiscardedTokens, fmt.Sprintf("%s groups; past the staleness budget", Count(w.GroupsEnded.Discarded))},
		{"filtered", w.FilteredTokens, fmt.Sprintf("%s groups; nothing to learn", Count(w.GroupsEnded.Filtered))},
		{"pruned", w.PrunedTokens, fmt.Sprintf("%s rollouts; stopped early by a rule", Count(w.PrunedRollouts))},
		{"cancelled", w.CancelledTokens, cancelledNote(w)},
		{"failed", w.FailedTokens, "of rollouts that failed, or whose group did"},
	}
	all := int64(0)
	for _, end := range ends {
		all += end.tokens
	}
	if all == 0 {
		return nil
	}
	rows := []Row{{Name: "tokens wasted", Value: Share(w.WastedShare), Note: "made and never trained"}}
	for _, end := range ends {
		if end.tokens > 0 {
			rows = append(rows, Row{Name: end.name, Value: Count(end.tokens), Note: Share(float64(end.tokens)/float64(all)) + "; " + end.note})
		}
	}
	for _, filter := range []struct {
		name  string
		share float64
	}{{"accepted by verdicts", s.FilterAcceptance.Verdict}, {"accepted by the zero-advantage filter", s.FilterAcceptance.ZeroAdvantage},
		{"accepted by the solve-rate filter", s.FilterAcceptance.SolveRate}} {
		if filter.share < 1 {
			rows = append(rows, Row{Name: filter.name, Value: Share(filter.share), Note: "of the groups that reached it"})
		}
	}
	if s.Reuse.Max > 1 {
		rows = append(rows, Row{Name: "train steps per trained group", Value: Figure(s.Reuse.Mean, 2), Note: fmt.Sprintf("at most %d", s.Reuse.Max)})
	}
	return rows
}

// cancelledNote says why rollouts were stopped in flight.
func cancelledNote(w metrics.Waste) string {
	var why []string
	if w.RedundantRollouts > 0 {
		why = append(why, fmt.Sprintf("%s rollouts redundant", Count(w.RedundantRollouts)))
	}
	if w.SurplusGroups > 0 {
		why = append(why, fmt.Sprintf("%s groups surplus", Count(w.SurplusGroups)))
	}
	if w.GroupsEnded.Discarded > 0 {
		why = append(why, "of groups past the staleness budget")
	}
	if len(why) == 0 {
		return "stopped in flight with their group"
	}
	return "stopped in flight; " + strings.Join(why, ", ")
}

// PartialRows says what interruptions and switches of weights did to rollouts; nil if nothing.
func PartialRows(s metrics.Summary) []Row {
	p := s.Partial
	if p.Interruptions == 0 && p.PartialRollouts == 0 {
		return nil
	}
	rows := []Row{{Name: "trained over more than one version", Value: Share(p.PartialRatio),
		Note: fmt.Sprintf("%s rollouts; at most %d versions from start to end", Count(p.PartialRollouts), p.VersionSpanMax)}}
	if p.Interruptions == 0 {
		return rows
	}
	rows = append(rows,
		Row{Name: "interruptions", Value: Count(p.Interruptions), Note: fmt.Sprintf("%s resumed", Count(p.Resumed))},
		Row{Name: "rollouts resumed", Value: Share(p.ResumedRatio), Note: "of those scored"},
		Row{Name: "spans per rollout", Value: Figure(p.SpansMean, 2), Note: fmt.Sprintf("at most %d", p.SpansMax)},
		Row{Name: "backlog, mean", Value: Figure(p.BacklogMean, 1), Note: fmt.Sprintf("rollouts; at most %s, %s at the end", Count(p.BacklogMax), Count(p.BacklogEnd))},
	)
	if p.LimitedRollouts > 0 {
		rows = append(rows, Row{Name: "given up", Value: Count(p.LimitedRollouts), Note: "interrupted as often as may be, and tried afresh"})
	}
	if p.ResumedRatio > 0 && p.RewardFresh+p.RewardResumed != 0 {
		rows = append(rows, Row{Name: "reward, resumed", Value: Figure(p.RewardResumed, 3), Note: fmt.Sprintf("%s of others", Figure(p.RewardFresh, 3))})
	}
	if p.StateLagMax > 0 {
		rows = append(rows, Row{Name: "environment state's lag", Value: Figure(p.StateLagMean, 2), Note: fmt.Sprintf("versions, of resumed rollouts; at most %d", p.StateLagMax)})
	}
	return rows
}

// offPolicyTable has one row a bucket of staleness; columns nobody measured are left out.
func offPolicyTable(buckets []OffPolicy) Table {
	columns := []struct {
		name  string
		value func(OffPolicy) string
		known func(OffPolicy) bool
	}{
		{"tokens", func(b OffPolicy) string { return Count(b.Tokens) }, func(OffPolicy) bool { return true }},
		{"outside the band", func(b OffPolicy) string { return Share(b.ClipFraction) }, func(b OffPolicy) bool { return !math.IsNaN(b.ClipFraction) }},
		{"predicted", func(b OffPolicy) string { return Share(b.Predicted) }, func(b OffPolicy) bool { return !math.IsNaN(b.Predicted) }},
		{"clipped", func(b OffPolicy) string { return Share(b.Clipped) }, func(b OffPolicy) bool { return !math.IsNaN(b.Clipped) }},
		{"mean log-ratio", func(b OffPolicy) string { return Figure(b.MeanLogRatio, 4) }, func(b OffPolicy) bool { return !math.IsNaN(b.MeanLogRatio) }},
		{"effective share", func(b OffPolicy) string { return Share(b.EffectiveShare) }, func(b OffPolicy) bool { return !math.IsNaN(b.EffectiveShare) }},
		{"health", func(b OffPolicy) string { return b.Health }, func(b OffPolicy) bool { return b.Health != "" }},
	}
	table := Table{Title: "Off-policy, by staleness", Header: []string{"staleness"}}
	for _, b := range buckets {
		table.Rows = append(table.Rows, []string{b.Staleness})
	}
	for _, column := range columns {
		known := false
		for _, b := range buckets {
			known = known || column.known(b)
		}
		if !known {
			continue
		}
		table.Header = append(table.Header, column.name)
		for i, b := range buckets {
			table.Rows[i] = append(table.Rows[i], column.value(b))
		}
	}
	return table
}
