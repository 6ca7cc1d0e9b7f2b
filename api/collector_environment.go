package api

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
)

// ofEnvironment is a figure of a control plane that plays rollouts itself; others do not have it.
func ofEnvironment(name, help string, kind prometheus.ValueType, labels []string, read func(e *protocol.EnvironmentStatus, emit func(value float64, labels ...string))) figure {
	return figure{name, help, kind, labels, func(s protocol.Status, emit func(float64, ...string)) {
		if s.Environment != nil {
			read(s.Environment, emit)
		}
	}}
}

// byName emits a figure for each name of a map.
func byName(counts map[string]int64, emit func(float64, ...string)) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		emit(float64(counts[name]), name)
	}
}

// environmentFigures are those of rollouts that are played here, and of who judges them.
var environmentFigures = []figure{
	ofEnvironment("headway_episodes_playing", "Rollouts that the control plane's own players play.", gauge, nil, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		emit(float64(e.Episodes.Playing))
	}),
	ofEnvironment("headway_episodes_total", "Rollout attempts that its players have ended, by end.", counter, []string{"end"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		emit(float64(e.Episodes.Scored), "scored")
		emit(float64(e.Episodes.Failed), "failed")
		emit(float64(e.Episodes.Unwanted), "unwanted")
	}),
	ofEnvironment("headway_episode_failures_total", "Attempts without a reward, by class of failure.", counter, []string{"class"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		byName(e.Episodes.Failures, emit)
	}),
	ofEnvironment("headway_episode_limits_total", "Limits of sandboxes that the policy's code met, by class.", counter, []string{"class"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		byName(e.Episodes.Limits, emit)
	}),
	ofEnvironment("headway_episode_turns_total", "Messages of the policy in those attempts.", counter, nil, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		emit(float64(e.Episodes.Turns))
	}),
	ofEnvironment("headway_episode_seconds_total", "Time that attempts spent, by part.", counter, []string{"part"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		for _, p := range e.Episodes.Parts {
			emit(p.TotalS, p.Part)
		}
	}),
	ofEnvironment("headway_episode_seconds", "Time of an attempt, by part and in all (whole).", gauge, []string{"part", "statistic"}, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		whole := e.Episodes.Whole
		whole.Part = "whole"
		for _, p := range append(slices.Clone(e.Episodes.Parts), whole) {
			emit(p.MeanS, p.Part, "mean")
			emit(p.P50S, p.Part, "p50")
			emit(p.P99S, p.Part, "p99")
		}
	}),
	ofVerifier("headway_verifier_judging", "Rollouts that are being judged.", gauge, nil, func(v *protocol.Verifier, emit func(float64, ...string)) {
		emit(float64(v.Judging))
	}),
	ofVerifier("headway_verifier_waiting", "Rollouts that wait to be judged.", gauge, nil, func(v *protocol.Verifier, emit func(float64, ...string)) {
		emit(float64(v.Waiting))
	}),
	ofVerifier("headway_verifier_verdicts_total", "Verdicts that were given.", counter, nil, func(v *protocol.Verifier, emit func(float64, ...string)) {
		emit(float64(v.Verdicts))
	}),
	ofVerifier("headway_verifier_failures_total", "Rollouts that the verifier could not judge, by class.", counter, []string{"class"}, func(v *protocol.Verifier, emit func(float64, ...string)) {
		byName(v.Failures, emit)
	}),
	ofVerifier("headway_verifier_seconds", "Time of a verdict, and of the wait for it.", gauge, []string{"part", "statistic"}, func(v *protocol.Verifier, emit func(float64, ...string)) {
		for part, q := range map[string]protocol.Quantiles{"verdict": v.JudgeS, "wait": v.WaitS} {
			emit(q.P50, part, "p50")
			emit(q.P90, part, "p90")
			emit(q.P99, part, "p99")
		}
	}),
}

// ofVerifier is a figure of a verifier; where the environment gives rewards itself there is none.
func ofVerifier(name, help string, kind prometheus.ValueType, labels []string, read func(v *protocol.Verifier, emit func(value float64, labels ...string))) figure {
	return ofEnvironment(name, help, kind, labels, func(e *protocol.EnvironmentStatus, emit func(float64, ...string)) {
		if e.Verifier != nil {
			read(e.Verifier, emit)
		}
	})
}
