package config

import (
	"errors"
	"io/fs"
	"math"
	"reflect"
	"strconv"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/loop/workload/session"
)

// SessionsModel compiles the recorded sessions, nil where the document names none. The error is an [Errors].
func (c Config) SessionsModel() (*workload.Recorded, error) {
	if c.Modelled.Sessions == "" {
		return nil, nil
	}
	w, err := session.Load(c.Modelled.Sessions)
	if err != nil {
		if path, is := errors.AsType[*fs.PathError](err); is {
			err = path.Err
		}
		placed := c.problem("modelled.sessions", strconv.Quote(c.Modelled.Sessions), "cannot be read: "+err.Error(), "a file that headway workload describes")
		placed.Cause = err
		return nil, Errors{placed}
	}
	return w.Rollouts, nil
}

// RecordedTimes reports whether a simulation takes the times of tools from the recorded sessions. It then needs no
// modelled.tools.time, which says their mean.
func (c Config) RecordedTimes() bool {
	if c.Modelled.Sessions == "" {
		return false
	}
	w, err := session.Load(c.Modelled.Sessions)
	return err == nil && w.Timed
}

// sessionsDefaults has the keys that closed forms read say what recorded sessions are in the mean. A file that cannot
// be read changes nothing; SessionsModel reports it.
func (c *Config) sessionsDefaults() {
	if c.Modelled.Sessions == "" {
		return
	}
	if length := &c.Modelled.Length; reflect.ValueOf(*length).IsZero() {
		length.Kind = "empirical"
	}
	w, err := session.Load(c.Modelled.Sessions)
	if err != nil {
		return
	}
	m := &c.Modelled
	orCount(&m.PromptTokens, int(math.Round(w.PromptTokens)), c.given("modelled.prompt_tokens"))
	if w.Calls == 0 {
		return
	}
	orNumber(&m.Tools.Calls, significant(min(w.Calls, workload.MaxToolCalls)), c.given("modelled.tools.calls"))
	orCount(&m.Tools.OutputTokens, int(math.Round(w.ReadTokens)), c.given("modelled.tools.output_tokens"))
	if _, given := c.givenUnder("modelled.tools.time"); w.Timed && !given && m.Tools.Time.isZero() {
		m.Tools.Time = TimeModel{Kind: "fixed", MeanS: significant(w.GapS)}
		if tailness := significant(session.Tailness(w.GapCV)); tailness > 0 {
			m.Tools.Time.Kind, m.Tools.Time.Tailness = "lognormal", tailness
		}
	}
}

// significant rounds to six digits, as a document prints them.
func significant(x float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil {
		return x
	}
	return rounded
}

// sessions refuses what recorded sessions say already, and what cannot change them.
func (v *validator) sessions() {
	c := v.config
	said := func(key string, differs bool) {
		if differs {
			v.fail(key, nil, "says again what modelled.sessions says", "one of the two")
		}
	}
	said("modelled.length", !reflect.DeepEqual(c.Modelled.Length, Length{Kind: "empirical"}))
	fresh := Config{Modelled: Modelled{Sessions: c.Modelled.Sessions}}
	fresh.sessionsDefaults()
	want, have := fresh.Modelled, c.Modelled
	if want.PromptTokens == 0 {
		return // the file cannot be read
	}
	said("modelled.prompt_tokens", have.PromptTokens != want.PromptTokens)
	said("modelled.tools.calls", have.Tools.Calls != want.Tools.Calls)
	said("modelled.tools.output_tokens", have.Tools.OutputTokens != want.Tools.OutputTokens)
	said("modelled.tools.calls_kind", have.Tools.CallsKind != "" && have.Tools.CallsKind != "fixed")
	said("modelled.tools.calls_max", have.Tools.CallsMax != 0)
	said("modelled.tools.split", have.Tools.Split == "random")
	said("modelled.tools.time", !want.Tools.Time.isZero() && !reflect.DeepEqual(have.Tools.Time, want.Tools.Time))
	v.idle("rollout.drift.length_factor", c.Rollout.Drift.LengthFactor > 0, "on recorded sessions", "leave it out")
	v.idle("rollout.drift.tool_calls_factor", c.Rollout.Drift.ToolCallsFactor > 0, "on recorded sessions", "leave it out")
}
