package parts

import (
	"fmt"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/engine/upstream"
)

// openScorer makes the pool of teachers and references, which are asked nothing yet.
func (p *Parts) openScorer() error {
	if !p.Cfg.Scores() {
		return nil
	}
	var err error
	if p.Scorer, err = ScorerOf(p.Cfg, p.Vocabulary()); err == nil {
		p.OnClose(p.Scorer.Close)
	}
	return err
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
