package main

import (
	"strconv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

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
