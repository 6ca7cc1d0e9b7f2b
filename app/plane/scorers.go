package plane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// awaitScorers has teachers and references score a few tokens, and ends the start of a run whose rollouts they could not
// score. A new run waits for those that do not answer, as it does for engines: a rollout that nobody scores was generated
// in vain. One that goes on does not wait.
func (p *Plane) awaitScorers(ctx context.Context, goesOn bool) error {
	if p.Scorer == nil {
		return nil
	}
	return p.awaitProbed(ctx, goesOn, func() []scorer.Found { return p.ProbeScorers(ctx) })
}

func (p *Plane) awaitProbed(ctx context.Context, goesOn bool, probe func() []scorer.Found) error {
	limit := time.NewTimer(serversWait)
	defer limit.Stop()
	again := time.NewTicker(serversAgain)
	defer again.Stop()
	defer p.awaits("", "")
	said := ""
	for {
		down, unfit, warnings := p.ScorersText(probe())
		switch {
		case len(unfit) > 0 && !goesOn:
			return parts.Unfit(unfit)
		case len(down)+len(unfit) > 0 && goesOn:
			p.logf("going on, and rollouts fail until they are scored: %s", strings.Join(append(down, unfit...), "; "))
			return nil
		case len(down) == 0:
			for _, text := range warnings {
				p.logf("%s", text)
			}
			return nil
		}
		if text := strings.Join(down, "; "); text != said {
			said = text
			p.awaits(fmt.Sprintf("%s to answer", report.Counted(len(down), "scoring server")), text)
			p.logf("scoring.servers unreachable: waiting, up to %s: %s", serversWait, text)
		}
		select {
		case <-again.C:
		case <-limit.C:
			return failure.Usage("start the servers, or look at scoring.servers.*.url and kind; headway doctor says what each lacks", "no answer from %s within %s: %s", report.Counted(len(down), "scoring server"), serversWait, said)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
