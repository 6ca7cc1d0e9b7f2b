package api

import (
	"maps"
	"slices"

	"github.com/headway-rl/headway/api/protocol"
)

func environmentOf(s protocol.Status) *protocol.EnvironmentStatus { return s.Environment }

// byName emits a figure for each name of a map.
func byName(counts map[string]int64, emit func(float64, ...string)) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		emit(float64(counts[name]), name)
	}
}

// environmentFigures are those of rollouts that are played here, and of who judges them.
var environmentFigures = []figure{
	single(environmentOf, "headway_episodes_playing", "Rollouts that the control plane's own players play.", gauge, func(e *protocol.EnvironmentStatus) float64 { return float64(e.Episodes.Playing) }),
	of(environmentOf, "headway_episodes_total", "Rollout attempts that its players have ended, by end.", counter, []string{"end"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		emit(float64(e.Episodes.Scored), "scored")
		emit(float64(e.Episodes.Failed), "failed")
		emit(float64(e.Episodes.Unwanted), "unwanted")
	}),
	of(environmentOf, "headway_episode_failures_total", "Attempts without a reward, by class of failure.", counter, []string{"class"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		byName(e.Episodes.Failures, emit)
	}),
	of(environmentOf, "headway_episode_limits_total", "Limits of sandboxes that the policy's code met, by class.", counter, []string{"class"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		byName(e.Episodes.Limits, emit)
	}),
	single(environmentOf, "headway_episode_turns_total", "Messages of the policy in those attempts.", counter, func(e *protocol.EnvironmentStatus) float64 { return float64(e.Episodes.Turns) }),
	of(environmentOf, "headway_episode_seconds_total", "Time that attempts spent, by part.", counter, []string{"part"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		for _, p := range e.Episodes.Parts {
			emit(p.TotalS, p.Part)
		}
	}),
	of(environmentOf, "headway_episode_seconds", "Time of an attempt, by part and in all (whole).", gauge, []string{"part", "statistic"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		whole := e.Episodes.Whole
		whole.Part = "whole"
		for _, p := range append(slices.Clone(e.Episodes.Parts), whole) {
			emit(p.MeanS, p.Part, "mean")
			emit(p.P50S, p.Part, "p50")
			emit(p.P99S, p.Part, "p99")
		}
	}),
	single(verifierOf, "headway_verifier_judging", "Rollouts that are being judged.", gauge, func(v *protocol.Verifier) float64 { return float64(v.Running) }),
	single(verifierOf, "headway_verifier_waiting", "Rollouts that wait to be judged.", gauge, func(v *protocol.Verifier) float64 { return float64(v.Waiting) }),
	single(verifierOf, "headway_verifier_verdicts_total", "Verdicts that were given.", counter, func(v *protocol.Verifier) float64 { return float64(v.Verdicts) }),
	of(verifierOf, "headway_verifier_failures_total", "Rollouts that the verifier could not judge, by class.", counter, []string{"class"}, func(v *protocol.Verifier, emit func(float64, ...string)) {
		byName(v.Failures, emit)
	}),
	of(verifierOf, "headway_verifier_seconds", "Time of a verdict, and of the wait for it.", gauge, []string{"part", "statistic"}, func(v *protocol.Verifier, emit func(float64, ...string)) {
		for part, q := range map[string]protocol.Quantiles{"verdict": v.VerdictS, "wait": v.WaitS} {
			emit(q.P50, part, "p50")
			emit(q.P90, part, "p90")
			emit(q.P99, part, "p99")
		}
	}),
}

// verifierOf is nil where the environment gives rewards itself.
func verifierOf(s protocol.Status) *protocol.Verifier {
	if s.Environment == nil {
		return nil
	}
	return s.Environment.Verifier
}
