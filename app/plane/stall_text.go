package plane

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/observe/report"
)

// stallText say what a run waits for, empty for nothing.
func stallText(s *protocol.Stall) string {
	if s == nil {
		return ""
	}
	words := "no progress for " + report.Lasting(s.SinceS)
	for _, f := range s.Findings {
		words += "; " + f.Message
	}
	return words
}
