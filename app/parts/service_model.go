package parts

import (
	"encoding/json"
	"errors"
	"fmt"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// shapeFile is where a run at a service notes in its directory which model it began with: unlike a run of servers it has
// no copy of what stands beside the weights.
const shapeFile = "model.json"

// Endless says what a model's directory lacks of which no response would end.
const Endless = "does not say which tokens end a response, and a service stops at those alone that it is told"

// keptShape is what stands in shapeFile.
type keptShape struct {
	// Base is the base model by the service's name.
	Base       string  `json:"base"`
	Vocabulary int     `json:"vocabulary"`
	Context    int     `json:"context,omitempty"`
	Ends       []int32 `json:"ends"`
}

// readShape is what a run began with; known is false for one that has not.
func readShape(dir string) (kept keptShape, known bool, err error) {
	path := filepath.Join(dir, shapeFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return kept, false, failure.Run("restore it from a copy of the run", "which model the run began with: %s: %w", path, err)
	}
	return kept, true, nil
}

// KeepShape notes which model a run begins with, and refuses another base model for one that goes on.
func (p *Parts) KeepShape(base string) error {
	kept, known, err := readShape(p.Dir)
	if err != nil {
		return err
	}
	if known {
		if kept.Base != base {
			return p.Cfg.Refuse("engines.0.served_model", fmt.Sprintf("is %q, and the run's adapters are of %q", base, kept.Base), kept.Base+"; for another model begin a run under another --name")
		}
		return nil
	}
	c := p.policy.checkpoint
	text, err := json.Marshal(keptShape{base, c.Vocabulary, c.Context, c.Ends})
	if err != nil {
		return err
	}
	return replace.File(filepath.Join(p.Dir, shapeFile), append(text, '\n'), 0o600)
}

// prepareHosted reads the model of a run at a service, whose weights are there. A run that has begun needs the
// model's directory no more, and refuses that of another model.
func (p *Parts) prepareHosted() error {
	shape, err := ShapeOf(p.Cfg)
	kept, known, keptErr := readShape(p.Dir)
	switch {
	case keptErr != nil:
		return keptErr
	case known && err == nil && (shape.Vocabulary != kept.Vocabulary || !slices.Equal(shape.Ends, kept.Ends)):
		return p.Cfg.Refuse("model.path", fmt.Sprintf("is another model than the run has: it has %d token ids of which %v end a response, and the run's has %d and %v", shape.Vocabulary, shape.Ends, kept.Vocabulary, kept.Ends),
			"the directory that the run began with, or a copy of it; for another model begin a run under another --name")
	case known:
		shape.Vocabulary, shape.Context, shape.Ends = kept.Vocabulary, kept.Context, kept.Ends
	case err != nil:
		return p.Cfg.Refuse("model.path", "is no model: "+err.Error(), "a directory with the base model's config.json and tokenizer; its weights are not needed")
	}
	if len(shape.Ends) == 0 {
		return p.Cfg.Refuse("model.path", Endless, "eos_token_id in its config.json or generation_config.json")
	}
	p.policy = &servedModel{checkpoint: shape}
	p.policy.limits, err = ServedLimits(p.Cfg, shape.Context)
	return err
}
