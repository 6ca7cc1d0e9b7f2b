package main

import (
	"strings"

	"github.com/headway-rl/headway/internal/failure"
)

// movedStudyCmd names the program of the studies, for those who type the command of an earlier release.
type movedStudyCmd struct {
	Arguments []string `arg:"" optional:"" hidden:""`
}

// Run refuses, and says what to type.
func (c *movedStudyCmd) Run() error {
	line := strings.Join(append([]string{"go run ./cmd/lab study"}, c.Arguments...), " ")
	return failure.Usage("in a checkout of the repository: "+line, "the studies are no longer a command of headway")
}
