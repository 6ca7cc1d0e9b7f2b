package plane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// scorersProbe is how long a server that scores may take to score three tokens before a run.
const scorersProbe = 30 * time.Second

// awaitScorers has teachers and references score a few tokens, and ends the start of a run whose rollouts they could not
// score. A new run waits for those that do not answer, as it does for engines: a rollout that nobody scores was generated
// in vain. One that goes on does not wait.
func (p *Plane) awaitScorers(ctx context.Context, goesOn bool) error {
	if p.Scorer == nil {
		return nil
	}
	return p.awaitProbed(ctx, goesOn, func() []scorer.Found {
		ctx, cancel := context.WithTimeout(ctx, scorersProbe)
		defer cancel()
		return p.Scorer.Probe(ctx)
	})
}

func (p *Plane) awaitProbed(ctx context.Context, goesOn bool, probe func() []scorer.Found) error {
	limit := time.NewTimer(serversWait)
	defer limit.Stop()
	again := time.NewTicker(serversAgain)
	defer again.Stop()
	defer p.awaits("", "")
	said := ""
	for {
		down, unfit, warnings := p.scorersText(probe())
		switch {
		case len(unfit) > 0 && !goesOn:
			return failure.Usage("headway doctor with this document says it again without starting anything", "rollouts cannot be scored: %s", strings.Join(unfit, "; "))
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

// scorersText says of servers which do not answer, which could not score, and what others lack.
func (p *Plane) scorersText(found []scorer.Found) (down, unfit, warnings []string) {
	limits := p.Limits()
	need := limits.PromptTokens + limits.ResponseTokens
	for i, f := range found {
		s := p.Cfg.Scoring.Servers[i]
		switch {
		case f.Silent:
			down = append(down, fmt.Sprintf("%s %s: %v", s.Channel, s.Name, f.Err))
		case f.Err != nil:
			unfit = append(unfit, fmt.Sprintf("%s %s: %v", s.Channel, s.Name, f.Err))
		}
		if f.Narrow != nil {
			warnings = append(warnings, fmt.Sprintf("%s %s takes fewer token ids than the policy has, and could not score a rollout with one of the others: %v", s.Channel, s.Name, f.Narrow))
		}
		if room := f.Context - f.Spare; f.Context > 0 && room < need {
			warnings = append(warnings, fmt.Sprintf("%s %s scores sequences of %d tokens, and a rollout may have %d: longer ones fail every time. Start it with a context that is longer by %d, or lower environment.prompt_tokens_max or response_tokens_max", s.Channel, s.Name, room, need, need-room))
		}
	}
	return down, unfit, warnings
}
