package scorer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/headway-rl/headway/engine/upstream"
)

// Found is what asking a server came to.
type Found struct {
	// Silent: it did not answer at all, and may do so later. Err is why it is of no use, nil where it is.
	Silent bool
	Err    error
	// Narrow is why it takes fewer token ids than the policy has, nil where it takes all.
	Narrow error
	// Context is the longest sequence that it takes, 0 for unknown. Spare is how much of it stays free.
	Context, Spare int
}

// Probe has every server score a few tokens, the policy's last id among them. The answers are in the order of
// Options.Servers.
func (p *Pool) Probe(ctx context.Context) []Found {
	found := make([]Found, len(p.opt.Servers))
	var all sync.WaitGroup
	for i, s := range p.opt.Servers {
		all.Go(func() { found[i] = p.probe(ctx, &member{Server: s}) })
	}
	all.Wait()
	return found
}

func (p *Pool) probe(ctx context.Context, m *member) (f Found) {
	top := 0
	if m.Channel == Teacher {
		top = p.opt.TopK
	}
	q, _ := ask([]int32{0, 1, 2}, []uint8{0, 0, 1}, top, p.opt.Vocabulary)
	if _, err := p.askOne(ctx, m, q); err != nil {
		f.Silent = upstream.StatusOf(err) == 0 && !errors.Is(err, upstream.ErrLied) || upstream.StatusOf(err) >= 500
		f.Err = err
		return f
	}
	if n := p.opt.Vocabulary; n > 3 {
		q, _ = ask([]int32{0, 1, int32(n - 1)}, []uint8{0, 0, 1}, top, n)
		_, f.Narrow = p.askOne(ctx, m, q)
	}
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := m.Home.Call(ctx, http.MethodGet, "/v1/models", nil, &models); err == nil {
		for _, served := range models.Data {
			if f.Context == 0 && (m.Home.Model == "" || m.Home.Model == served.ID) {
				f.Context = served.Context
			}
		}
	}
	if m.Kind == "vllm" { // it wants room for a token to sample
		f.Spare = 1
	}
	return f
}

// advised adds to the refusal of a server what to start it with.
func advised(err error, top int) error {
	switch {
	case upstream.StatusOf(err) != http.StatusBadRequest:
	case strings.Contains(err.Error(), "greater than max allowed"):
		return fmt.Errorf("it says fewer likely tokens than scoring.top_k asks for: start it with --max-logprobs %d: %w", top, err)
	case strings.Contains(err.Error(), "max_tokens must be at least 1"): // which is what it says of a full context
		return fmt.Errorf("the rollout fills its context: start it with a --max-model-len of one token more: %w", err)
	}
	return err
}
