package parts

import (
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/engine/upstream"
)

// openScorer makes the pool of teachers and references, which are asked nothing yet.
func (p *Parts) openScorer() error {
	if !p.Cfg.Scores() {
		return nil
	}
	s := p.Cfg.Scoring
	opt := scorer.Options{TopK: s.TopK, Timeout: config.Seconds(s.TimeoutS), Attempts: s.Attempts, Vocabulary: p.Vocabulary()}
	for i, e := range s.Servers {
		home, err := ScoringHome(e)
		if err != nil {
			return p.Cfg.Refuse(fmt.Sprintf("scoring.servers.%d.key_file", i), "is no use: "+err.Error(), "a file with the server's API key, or leave it out")
		}
		opt.Servers = append(opt.Servers, scorer.Server{Name: e.Name, Kind: e.Kind, Channel: e.Channel, Slots: e.Slots, Home: home})
		p.OnClose(func() error { home.Close(); return nil })
	}
	var err error
	p.Scorer, err = scorer.New(opt)
	return err
}

// ScoringHome is where a server that scores is.
func ScoringHome(e config.ScoringServer) (*upstream.Server, error) {
	return upstream.NewServer(upstream.ServerOptions{URL: e.URL, Model: e.ServedModel, KeyFile: e.KeyFile, Connections: e.Slots})
}
