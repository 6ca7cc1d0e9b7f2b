package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
)

// scoringFigures are what teachers and references do. A run without them has none.
var scoringFigures = []figure{
	scoring("headway_scoring_calls_total", "Calls to a server that scores, by whether it answered.", counter, []string{"channel", "server", "result"}, func(s protocol.ScoringServer, emit func(float64, ...string)) {
		emit(float64(s.Calls), "answered")
		emit(float64(s.Failures), "failed")
	}),
	scoring("headway_scoring_seconds_total", "Seconds that calls to a server that scores have taken.", counter, []string{"channel", "server"}, func(s protocol.ScoringServer, emit func(float64, ...string)) {
		emit(s.Seconds)
	}),
	scoring("headway_scoring_running", "Calls to a server that scores under way.", gauge, []string{"channel", "server"}, func(s protocol.ScoringServer, emit func(float64, ...string)) {
		emit(float64(s.Running))
	}),
	{"headway_scoring_waiting", "Sequences that wait for a slot of a teacher or reference.", gauge, []string{"channel"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, c := range s.Scoring {
			emit(float64(c.Waiting), c.Channel)
		}
	}},
	{"headway_scoring_waited_seconds_total", "Seconds that sequences have waited for a slot of a teacher or reference.", counter, []string{"channel"}, func(s protocol.Status, emit func(float64, ...string)) {
		for _, c := range s.Scoring {
			emit(c.WaitedS, c.Channel)
		}
	}},
}

// scoring is a figure of every server that scores.
func scoring(name, help string, kind prometheus.ValueType, labels []string, read func(s protocol.ScoringServer, emit func(value float64, labels ...string))) figure {
	return figure{name, help, kind, labels, func(s protocol.Status, emit func(float64, ...string)) {
		for _, c := range s.Scoring {
			for _, server := range c.Servers {
				read(server, func(x float64, more ...string) { emit(x, append([]string{c.Channel, server.Name}, more...)...) })
			}
		}
	}}
}
