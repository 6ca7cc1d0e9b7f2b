package main

import (
	"bytes"
	"io"
	"strconv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// seriesField is where the series goes in the JSON of a simulation.
const seriesField = `  "series": null`

// printSimulationJSON prints a simulation, or one without its means, as JSON, its
// series a line a train step. That is written by hand: a long series is most of the
// document, and indenting it would take longer than some simulations.
func printSimulationJSON(w io.Writer, document any, steps []metrics.Step, control *metrics.Control) error {
	var text bytes.Buffer
	if err := printJSON(&text, document); err != nil {
		return err
	}
	before, after, found := bytes.Cut(text.Bytes(), []byte(seriesField))
	if !found {
		panic("headway: the JSON of a simulation has no place for its series")
	}
	out := make([]byte, 0, len(before)+len(after)+300*len(steps))
	out = append(out, before...)
	out = append(out, `  "series": [`...)
	moved := movedSettings(control)
	for i := range steps {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendPoint(append(out, "\n    "...), &steps[i], moved)
	}
	if len(steps) > 0 {
		out = append(out, "\n  "...)
	}
	out = append(out, ']')
	_, err := w.Write(append(out, after...))
	return err
}

// appendPoint appends one train step, units last in the names; moved are the settings of a controller.
func appendPoint(b []byte, s *metrics.Step, moved []loop.Setting) []byte {
	whole := func(name string, v int64) {
		b = append(append(b, name...), ':', ' ')
		b = strconv.AppendInt(b, v, 10)
	}
	number := func(name string, v float64) {
		b = append(append(b, name...), ':', ' ')
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	whole(`{"step"`, int64(s.Step))
	number(`, "time_s"`, seconds(s.TimeNS))
	number(`, "period_s"`, seconds(s.PeriodNS))
	number(`, "train_s"`, seconds(s.TrainNS))
	number(`, "staleness"`, s.Staleness)
	number(`, "pqs"`, s.PQS)
	number(`, "iqs"`, s.IQS)
	whole(`, "staleness_max"`, int64(s.StalenessMax))
	number(`, "token_staleness"`, s.TokenStaleness)
	whole(`, "trained_tokens"`, s.Tokens)
	number(`, "trainer_idle_ratio"`, s.TrainerIdle)
	number(`, "rollout_idle_ratio"`, s.RolloutIdle)
	whole(`, "queue_groups"`, int64(s.QueueGroups))
	whole(`, "backlog_rollouts"`, int64(s.BacklogRollouts))
	if s.Control.State != loop.ControlOff {
		b = appendControl(b, &s.Control, moved)
	}
	return append(b, '}')
}
