package main

import (
	"fmt"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/observe/report"
	"strings"
)

// startedText are a fleet's engine in a status for people, empty for one that is as it should be.
func startedText(s *protocol.Started) string {
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
