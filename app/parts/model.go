package parts

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/config"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// servedModel is the policy of engines that are servers, as its directory describes it.
type servedModel struct {
	checkpoint weights.Checkpoint
	limits     environment.Limits
}

// prepareServed reads the model of engines that are servers. A run that has begun keeps what stands
// beside its weights: that is its model, whatever stands in the model's directory now, which it needs
// no more.
func (p *Parts) prepareServed() error {
	checkpoint, err := ModelOf(p.Cfg)
	kept, keptErr := weights.ReadShape(filepath.Join(p.Dir, "weights", weights.BesideName))
	switch {
	case keptErr != nil && err != nil:
		return p.Cfg.Refuse("model.path", "is no model: "+err.Error(), "the directory that the engines' servers were started with, in the layout of Hugging Face")
	case keptErr == nil && err != nil:
		checkpoint = kept
	case keptErr == nil:
		other, err := differing(kept, checkpoint)
		if err != nil {
			return failure.Run("", "%w", err)
		}
		if other != "" {
			return p.Cfg.Refuse("model.path", fmt.Sprintf("is another model than the run has: its %s differs from that in %s", other, kept.Dir),
				"the directory that the run began with, or a copy of it; for another model begin a run under another --name")
		}
		checkpoint.Vocabulary, checkpoint.Context, checkpoint.Ends = kept.Vocabulary, kept.Context, kept.Ends
		checkpoint.Layers, checkpoint.Experts, checkpoint.ExpertsPerToken = kept.Layers, kept.Experts, kept.ExpertsPerToken
	}
	p.policy = &servedModel{checkpoint: checkpoint}
	p.policy.limits, err = ServedLimits(p.Cfg, checkpoint.Context)
	return err
}

// differing names a file that stands beside the weights of both models and is not the same; empty for
// none.
func differing(kept, now weights.Checkpoint) (string, error) {
	for _, name := range kept.Beside {
		if !slices.Contains(now.Beside, name) {
			continue
		}
		before, err := os.ReadFile(filepath.Join(kept.Dir, name))
		if err != nil {
			return "", err
		}
		after, err := os.ReadFile(filepath.Join(now.Dir, name))
		if err != nil {
			return "", err
		}
		if !bytes.Equal(before, after) {
			return name, nil
		}
	}
	return "", nil
}

// ModelOf reads the model of a document whose engines are servers.
func ModelOf(cfg config.Config) (weights.Checkpoint, error) {
	path, err := filepath.Abs(cfg.Model.Path)
	if err != nil {
		return weights.Checkpoint{}, err
	}
	return weights.ReadCheckpoint(path)
}

// ShapeOf reads the model of a document whose engine is a service, which has its weights.
func ShapeOf(cfg config.Config) (weights.Checkpoint, error) {
	path, err := filepath.Abs(cfg.Model.Path)
	if err != nil {
		return weights.Checkpoint{}, err
	}
	return weights.ReadShape(path)
}

// ServedLimits are the limits of prompts and responses under the model's context, 0 for unknown.
func ServedLimits(cfg config.Config, context int) (environment.Limits, error) {
	e := cfg.Environment
	limits := environment.Limits{PromptTokens: e.PromptTokensMax, ResponseTokens: e.ResponseTokensMax}
	if context == 0 {
		if limits.PromptTokens == 0 || limits.ResponseTokens == 0 {
			return limits, cfg.Refuse("model.path", "has a config.json that does not say how long a sequence may be", "environment.prompt_tokens_max and response_tokens_max, which then must be given")
		}
		return limits, nil
	}
	if limits.ResponseTokens == 0 {
		limits.ResponseTokens = max(context/4, 1)
		if limits.PromptTokens > 0 {
			limits.ResponseTokens = min(limits.ResponseTokens, context-limits.PromptTokens)
		}
	}
	limits.PromptTokens = cmp.Or(limits.PromptTokens, context-limits.ResponseTokens)
	if limits.PromptTokens < 1 || limits.ResponseTokens < 1 || limits.PromptTokens+limits.ResponseTokens > context {
		key := "environment.prompt_tokens_max"
		if e.PromptTokensMax == 0 {
			key = "environment.response_tokens_max"
		}
		return limits, cfg.Refuse(key, fmt.Sprintf("leaves no room: the model's context is %d tokens, for a prompt of up to %d and a response of up to %d", context, limits.PromptTokens, limits.ResponseTokens),
			fmt.Sprintf("prompt_tokens_max and response_tokens_max that add up to at most %d", context))
	}
	return limits, nil
}

// ModelFile is a file of the directory that describes the policy; nil where there is none, or no such directory.
func (p *Parts) ModelFile(name string) []byte {
	if p.policy == nil || p.policy.checkpoint.Dir == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(p.policy.checkpoint.Dir, name))
	if err != nil {
		return nil
	}
	return text
}

// Vocabulary is the number of the policy's token ids.
func (p *Parts) Vocabulary() int {
	if p.policy != nil {
		return p.policy.checkpoint.Vocabulary
	}
	return PolicyShape(p.Cfg, p.Task).Vocabulary
}

// Limits are the longest prompt and response of a rollout, in tokens.
func (p *Parts) Limits() environment.Limits {
	if p.policy != nil {
		return p.policy.limits
	}
	l := p.Task.Limits()
	return environment.Limits{PromptTokens: l.PromptTokens, ResponseTokens: l.ResponseTokens}
}

// sampling is how engines that are servers draw tokens; nil for embedded ones, which sample from the
// policy as it is.
func (p *Parts) sampling() *port.Sampling {
	if p.policy == nil {
		return nil
	}
	s := p.Cfg.Rollout.Sampling
	return &port.Sampling{Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, MinP: s.MinP}
}
