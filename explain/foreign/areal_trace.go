package foreign

import (
	"context"
	"encoding/json"
	"strings"
)

// arealSpan is a complete event of the performance tracer: microseconds.
type arealSpan struct {
	Name string   `json:"name"`
	Ph   string   `json:"ph"`
	Dur  *float64 `json:"dur"`
	Args struct {
		GlobalStep *int64 `json:"global_step"`
	} `json:"args"`
}

// arealScopes are the tracer's scopes of the train loop whose timer has another name.
var arealScopes = map[string]string{
	"ppo_update": "train_step", "critic_ppo_update": "critic_train_step", "compute_values": "critic_values", "checkpoint": "checkpoint_for_recover",
}

// readArealTrace takes the train loop's spans as the timers of the same step, which the stats have in more digits.
func readArealTrace(ctx context.Context, file string, taker Taker) error {
	values := map[string]float64{}
	at, begun := int64(0), false
	flush := func(line int64) error {
		if len(values) == 0 {
			return nil
		}
		err := taker.Row(Row{File: file, Line: line, Step: at, HasStep: true, Printed: true, Values: values})
		clear(values)
		return err
	}
	last := int64(0)
	err := eachJSON(ctx, file, taker, func(line []byte, number int64) error {
		var s arealSpan
		if err := json.Unmarshal(line, &s); err != nil {
			return errJSON
		}
		scope, ours := strings.CutPrefix(s.Name, "train.")
		if !ours || s.Ph != "X" || s.Dur == nil || s.Args.GlobalStep == nil {
			return nil
		}
		if begun && *s.Args.GlobalStep != at {
			if err := flush(last); err != nil {
				return err
			}
		}
		at, begun, last = *s.Args.GlobalStep, true, number
		if timer, other := arealScopes[scope]; other {
			scope = timer
		}
		values["timeperf/"+scope] += *s.Dur / 1e6
		return nil
	})
	if err != nil {
		return err
	}
	return flush(last)
}
