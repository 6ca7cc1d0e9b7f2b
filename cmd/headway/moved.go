package main

import (
	"strings"

	"github.com/headway-rl/headway/config"
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

// kindFlag is the kind of the flags in the table of names that changed.
const kindFlag = "flag"

// renamedFlag refuses a flag of an earlier release, given as COMMAND --FLAG, and names the present one if there is one.
func renamedFlag(old string) error {
	for _, r := range config.RenamedNames() {
		if r.Kind == kindFlag && r.Old == old {
			_, was, _ := strings.Cut(old, " ")
			_, now, _ := strings.Cut(r.New, " ")
			if now == "" {
				return failure.Usage("leave "+was+" out", "%s is no flag any more: %s", was, r.Why)
			}
			return failure.Usage("headway "+r.New, "%s is now %s: %s", was, now, r.Why)
		}
	}
	panic("headway: no renamed flag " + old)
}
