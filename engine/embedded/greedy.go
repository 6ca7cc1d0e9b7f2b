package embedded

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
)

// Greedy answers prompts with the most probable token each time, under a
// published version: how a policy is evaluated. It runs on the caller's
// goroutine beside the generations, with memory of its own, and changes
// nothing of what the engine serves.
func (e *Engine) Greedy(ctx context.Context, version loop.Version, prompts [][]int32, maxTokens int) ([][]int32, error) {
	parameters, err := e.parameters(ctx, version)
	if err != nil {
		return nil, err
	}
	const slots = 64
	decoder, err := transformer.NewDecoder(e.opt.Model, slots, slots*e.opt.PromptTokens)
	if err != nil {
		return nil, err
	}
	answers := make([][]int32, len(prompts))
	for low := 0; low < len(prompts); low += slots {
		high := min(low+slots, len(prompts))
		if err := e.greedy(ctx, decoder, parameters, prompts[low:high], answers[low:high], maxTokens); err != nil {
			return nil, fmt.Errorf("engine %s: answering under version %d: %w", e.opt.Name, version, err)
		}
	}
	return answers, nil
}

// greedy answers as many prompts as there are slots.
func (e *Engine) greedy(ctx context.Context, d *transformer.Decoder, w *transformer.Parameters, prompts, answers [][]int32, maxTokens int) error {
	var rows []transformer.Row
	open := make([]int, len(prompts))
	for i, prompt := range prompts {
		if len(prompt) < 1 || len(prompt) > e.opt.PromptTokens {
			return fmt.Errorf("prompt %d has %d tokens, want 1 to %d", i, len(prompt), e.opt.PromptTokens)
		}
		rows = appendPrompt(rows, i, e.opt.PromptTokens, prompt)
		open[i] = i
	}
	v := e.opt.Model.Vocabulary
	for len(open) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		logits, err := d.Step(w, rows)
		if err != nil {
			return err
		}
		rows = rows[:0]
		still := open[:0]
		for j, i := range open {
			token, _ := transformer.Greedy(logits[j*v : (j+1)*v])
			answers[i] = append(answers[i], token)
			if n := len(answers[i]); token != e.opt.End && n < maxTokens {
				still = append(still, i)
				rows = append(rows, transformer.Row{Slot: int32(i), Position: int32(e.opt.PromptTokens + n - 1), Token: token, Logits: true})
			}
		}
		open = still
	}
	return nil
}
