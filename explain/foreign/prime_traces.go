package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// primeEpisode is what is read of an episode's record.
type primeEpisode struct {
	Group struct {
		ID json.RawMessage `json:"id"`
	} `json:"group"`
	Run struct {
		Work struct {
			Policy *struct {
				Start int64 `json:"start"`
				End   int64 `json:"end"`
			} `json:"policy"`
		} `json:"work"`
	} `json:"run"`
	Timing primeTiming  `json:"timing"`
	Traces []primeTrace `json:"traces"`
}

type primeSpan struct {
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

func (s *primeSpan) seconds() float64 {
	if s == nil || s.End < s.Start {
		return 0
	}
	return s.End - s.Start
}

type primeTiming struct {
	Start   float64    `json:"start"`
	End     float64    `json:"end"`
	Setup   *primeSpan `json:"setup"`
	Scoring *primeSpan `json:"scoring"`
}

type primeTrace struct {
	Reward       *float64           `json:"reward"`
	Rewards      map[string]float64 `json:"rewards"`
	OutputTokens *float64           `json:"num_output_tokens"`
}

// readPrimeTraces reads the episodes that a step trained on: one a line. They were trained from the version
// before the step.
func readPrimeTraces(ctx context.Context, file string, taker Taker) error {
	step, numbered := primeStep(file)
	return Lines(ctx, file, taker, func(line []byte, number int64, whole bool) error {
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
		var episode primeEpisode
		if err := json.Unmarshal(line, &episode); err != nil {
			if whole {
				taker.Warn(file, number, "a line is no episode's record; left out")
			} else {
				taker.Warn(file, number, "the last line is cut off; left out")
			}
			return nil
		}
		r := episode.rollout()
		if numbered {
			r.Trained = Figure{Value: float64(step - 1), Origin: Logged, From: "step_N of the path, less 1"}
		}
		taker.Rollout(r)
		return nil
	})
}

// primeStep reads the step of rollouts/step_N/train/effective/traces.jsonl: of a path with several, the last.
func primeStep(file string) (int64, bool) {
	for _, element := range slices.Backward(strings.Split(filepath.ToSlash(file), "/")) {
		if rest, is := strings.CutPrefix(element, "step_"); is {
			if step, err := strconv.ParseInt(rest, 10, 64); err == nil {
				return step, true
			}
		}
	}
	return 0, false
}

func (e primeEpisode) rollout() Rollout {
	r := Rollout{Group: strings.Trim(string(e.Group.ID), `"`)}
	logged := func(value float64, from string) Figure { return Figure{Value: value, Origin: Logged, From: from} }
	if e.Run.Work.Policy != nil {
		r.Start = logged(float64(e.Run.Work.Policy.Start), "run.work.policy.start")
		r.End = logged(float64(e.Run.Work.Policy.End), "run.work.policy.end")
	}
	if e.Timing.End > e.Timing.Start && e.Timing.Start > 0 {
		r.StartS, r.EndS = logged(e.Timing.Start, "timing.start"), logged(e.Timing.End, "timing.end")
	}
	if e.Timing.Setup != nil || e.Timing.Scoring != nil {
		r.EnvironmentS = Figure{Value: e.Timing.Setup.seconds() + e.Timing.Scoring.seconds(), Origin: Inferred, From: "timing.setup + timing.scoring"}
	}
	tokens, known := 0.0, false
	for _, trace := range e.Traces {
		if trace.OutputTokens != nil {
			tokens, known = tokens+*trace.OutputTokens, true
		}
	}
	if known {
		r.Tokens = logged(tokens, "traces[].num_output_tokens")
	}
	if len(e.Traces) > 0 {
		r.Reward = e.Traces[0].reward()
	}
	return r
}

// reward is a trace's: as it stands, or the sum of its parts.
func (t primeTrace) reward() Figure {
	if t.Reward != nil {
		return Figure{Value: *t.Reward, Origin: Logged, From: "traces[0].reward"}
	}
	if len(t.Rewards) == 0 {
		return Figure{}
	}
	sum := 0.0
	for _, part := range t.Rewards {
		sum += part
	}
	return Figure{Value: sum, Origin: Inferred, From: "sum of traces[0].rewards"}
}
