package calibrate

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/loop/port"
)

// answer is one response to a prompt.
type answer struct {
	prompt, sample, tokens int
	truncated              bool
	err                    error
}

// lengths samples responses to the given prompts, in all slots.
func (m *session) lengths(ctx context.Context) error {
	if len(m.Prompts) == 0 {
		return nil
	}
	m.step(fmt.Sprintf("sampling %d responses to each of %d prompts", m.Samples, len(m.Prompts)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work, answers := make(chan answer), make(chan answer, m.Slots)
	for range m.Slots {
		go func() {
			for a := range work {
				answers <- m.answer(ctx, a)
			}
		}()
	}
	go func() {
		defer close(work)
		for i := range len(m.Prompts) * m.Samples {
			work <- answer{prompt: i / m.Samples, sample: i % m.Samples}
		}
	}()
	lengths := make([][]int, len(m.Prompts))
	for i := range lengths {
		lengths[i] = make([]int, m.Samples)
	}
	var failed error
	for range len(m.Prompts) * m.Samples {
		a := <-answers
		if a.err != nil && failed == nil {
			failed = a.err
			cancel() // the others end at once
		}
		lengths[a.prompt][a.sample] = a.tokens
		if a.truncated {
			m.result.Truncated++
		}
	}
	if failed != nil {
		return failed
	}
	m.result.Lengths, m.result.LengthMax = lengths, m.LengthMax
	if all := len(m.Prompts) * m.Samples; m.result.Truncated > 0 {
		m.note("lengths: %d of %d responses were cut at %d tokens", m.result.Truncated, all, m.LengthMax)
	}
	return nil
}

// answer samples one response.
func (m *session) answer(ctx context.Context, a answer) answer {
	most := m.LengthMax
	if m.Context > 0 {
		most = min(most, m.Context-len(m.Prompts[a.prompt]))
	}
	if most < 1 {
		a.err = fmt.Errorf("calibrate: prompt %d has %d tokens, the engine's context is %d", a.prompt+1, len(m.Prompts[a.prompt]), m.Context)
		return a
	}
	g, err := m.Engine.Generate(ctx, m.named(port.GenerateRequest{Prompt: m.Prompts[a.prompt], MaxTokens: most, Sampling: m.Sampling}))
	if err != nil {
		a.err = fmt.Errorf("calibrate: prompt %d: %w", a.prompt+1, err)
	}
	a.tokens, a.truncated = len(g.Tokens), g.Truncated
	return a
}
