package parts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/failure"
)

// scorersProbe is how long a server that scores may take to score three tokens before a run.
const scorersProbe = 30 * time.Second

// openScorer makes the pool of teachers and references, which are asked nothing yet.
func (p *Parts) openScorer() error {
	if !p.Cfg.Scores() {
		return nil
	}
	var err error
	document := p.Cfg
	if len(document.Cells()) > 0 {
		document.Scoring.Servers = p.shareOfScorers()
	}
	if p.Scorer, err = ScorerOf(document, p.Vocabulary()); err == nil {
		p.OnClose(p.Scorer.Close)
	}
	return err
}

// shareOfScorers are the servers of the document, with the slots of this process: as many as its engines have of all slots of
// engines, and one at least.
func (p *Parts) shareOfScorers() []config.ScoringServer {
	all := 0
	for _, e := range p.Cfg.Engines {
		all += e.Slots
	}
	servers := slices.Clone(p.Cfg.Scoring.Servers)
	for i := range servers {
		servers[i].Slots = max(servers[i].Slots*p.rolloutsOf(p.host.Cell)/max(all, 1), 1)
	}
	return servers
}

// ProbeScorers has teachers and references score a few tokens.
func (p *Parts) ProbeScorers(ctx context.Context) []scorer.Found {
	ctx, cancel := context.WithTimeout(ctx, scorersProbe)
	defer cancel()
	return p.Scorer.Probe(ctx)
}

// ScorersText says of servers which do not answer, which could not score, and what others lack.
func (p *Parts) ScorersText(found []scorer.Found) (down, unfit, warnings []string) {
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

// Unfit is the error of servers that could not score.
func Unfit(unfit []string) error {
	return failure.Usage("headway doctor with this document says it again without starting anything", "rollouts cannot be scored: %s", strings.Join(unfit, "; "))
}

// ScorerOf makes the pool of a document that names servers, for a policy of so many token ids.
func ScorerOf(document config.Config, vocabulary int) (*scorer.Pool, error) {
	s := document.Scoring
	opt := scorer.Options{TopK: s.TopK, Timeout: config.Seconds(s.TimeoutS), Attempts: s.Attempts, Vocabulary: vocabulary}
	for i, e := range s.Servers {
		home, err := upstream.NewServer(upstream.ServerOptions{URL: e.URL, Model: e.ServedModel, KeyFile: e.KeyFile, Connections: e.Slots})
		if err != nil {
			return nil, document.Refuse(fmt.Sprintf("scoring.servers.%d.key_file", i), "is no use: "+err.Error(), "a file with the server's API key, or leave it out")
		}
		opt.Servers = append(opt.Servers, scorer.Server{Name: e.Name, Kind: e.Kind, Channel: e.Channel, Slots: e.Slots, Home: home})
	}
	return scorer.New(opt)
}

// ScoringStatus is what teachers and references do, nil where the document names none.
func (p *Parts) ScoringStatus() (out []protocol.Scoring) {
	if p.Scorer == nil {
		return nil
	}
	for _, c := range p.Scorer.Stats() {
		said := protocol.Scoring{Channel: c.Channel, Waiting: c.Waiting, WaitedS: c.WaitedS}
		for _, s := range c.Servers {
			said.Servers = append(said.Servers, protocol.ScoringServer{Name: s.Name, URL: s.URL, Running: s.Running, Slots: s.Slots,
				Calls: s.Calls, Failures: s.Failures, Seconds: s.Seconds, LastError: s.LastError})
		}
		out = append(out, said)
	}
	return out
}
