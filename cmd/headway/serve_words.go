package main

import (
	"github.com/headway-rl/headway/api/protocol"
)

// stallWords say what a run waits for, empty for nothing.
func stallWords(s *protocol.Stall) string {
	if s == nil {
		return ""
	}
	words := "no progress for " + lastingWords(s.SinceS)
	for _, f := range s.Findings {
		words += "; " + f.Message
	}
	return words
}
