package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// startedWords are a fleet's engine in a status for people, empty for one that is as it should be.
func startedWords(s *protocol.Started) string {
	if s == nil {
		return ""
	}
	var words []string
	switch s.State {
	case fleet.Starting, fleet.Stopping:
		words = append(words, fmt.Sprintf("%s for %.0f s", s.State, s.SinceS))
	case fleet.Failed:
		words = append(words, "failed: "+s.Error)
	}
	if s.Starts > 1 {
		words = append(words, "started "+report.Counted(s.Starts, "time"))
	}
	if s.Failures > 0 {
		words = append(words, report.Counted(s.Failures, "failure"))
	}
	return strings.Join(words, ", ")
}

// RequestSetting implements api.Settings.
func (p *plane) RequestSetting(name string, value float64) error {
	setting, err := loop.ParseSetting(name)
	if err != nil {
		return protocol.Refuse(protocol.CodeNotFound, "%s", strings.TrimPrefix(err.Error(), "loop: "))
	}
	within := p.Rules.Control.Ranges[setting]
	if !within.Moves() {
		return protocol.Refuse(protocol.CodeNotFound, "%s does not move in this run: control.limits and fleet in its document say what does", name)
	}
	if !(value >= within.Least && value <= within.Most) {
		return protocol.Refuse(protocol.CodeInvalid, "%s may be from %g to %g in this run, and %g is not", name, within.Least, within.Most, value)
	}
	if counts := setting != loop.SettingHold && setting != loop.SettingLive; counts && value != math.Trunc(value) {
		return protocol.Refuse(protocol.CodeInvalid, "%s counts something, and %g is not whole", name, value)
	}
	if state := p.currentState(); state != stateRunning {
		return protocol.Refuse(protocol.CodeUnavailable, "the run is %s: nothing moves", state)
	}
	p.withRuntime(func(r *live.Runtime) { r.Request(setting, value) })
	p.say("asked from outside: %s to %g", name, value)
	return nil
}
