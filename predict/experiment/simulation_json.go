package experiment

import (
	"bytes"
	"io"
	"strconv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// seriesField is where the series goes in the JSON of a simulation.
const seriesField = `  "series": null`

// WriteJSON writes a simulation as JSON, with its means or without them.
func (s *Simulation) WriteJSON(w io.Writer, means bool) error {
	if !means {
		return printSimulationJSON(w, withoutMeans(*s), s.steps, s.Control)
	}
	return printSimulationJSON(w, *s, s.steps, s.Control)
}

// printSimulationJSON prints a simulation, or one without its means, as JSON, its
// series a line a train step. That is written by hand: a long series is most of the
// document, and indenting it would take longer than some simulations.
func printSimulationJSON(w io.Writer, document any, steps []metrics.Step, control *metrics.Control) error {
	var text bytes.Buffer
	if err := report.JSON(&text, document); err != nil {
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
	number(`, "time_s"`, float64(s.TimeNS)/1e9)
	number(`, "period_s"`, float64(s.PeriodNS)/1e9)
	number(`, "train_s"`, float64(s.TrainNS)/1e9)
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

// movedSettings are the settings that a controller may move, by name and place; none without one.
func movedSettings(c *metrics.Control) []loop.Setting {
	if c == nil {
		return nil
	}
	var out []loop.Setting
	for _, s := range c.Settings {
		if setting, err := loop.ParseSetting(s.Name); err == nil {
			out = append(out, setting)
		}
	}
	return out
}

// appendControl appends the controller after one train step of a simulation, to an object that goes on.
func appendControl(b []byte, p *metrics.StepControl, moved []loop.Setting) []byte {
	b = append(b, `, "control": {"state": "`...)
	b = append(append(b, p.State.String()...), '"')
	for _, figure := range [...]struct {
		name  string
		value float64
	}{{"measured_mean", p.Mean}, {"measured_share", p.Share}, {"batch_mean", p.Batch}, {"batch_share", p.BatchShare}} {
		if figure.value >= 0 {
			b = append(append(append(b, `, "`...), figure.name...), `": `...)
			b = strconv.AppendFloat(b, figure.value, 'g', -1, 64)
		}
	}
	for _, truth := range [...]struct {
		name string
		is   bool
	}{{"judged", p.Judged}, {"held", p.Held}, {"batch_held", p.BatchHeld}} {
		b = append(append(append(b, `, "`...), truth.name...), `": `...)
		b = strconv.AppendBool(b, truth.is)
	}
	b = append(b, `, "settings": {`...)
	for i, setting := range moved {
		if i > 0 {
			b = append(b, `, `...)
		}
		b = append(append(append(b, '"'), setting.String()...), `": `...)
		b = strconv.AppendFloat(b, p.Settings[setting], 'g', -1, 64)
	}
	return append(b, `}}`...)
}
