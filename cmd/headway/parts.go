package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/remote"
)

// configFile is the resolved config's name in a run directory, for people and other tools.
const configFile = "config.yaml"

// parts are the running parts of one run of a document, in one directory.
type parts struct {
	cfg   config.Config
	dir   string
	rules loop.Config
	// logf tells the operator; nil for nobody.
	logf func(format string, args ...any)
	// task and heldOut are of embedded engines, policy of engines that are servers: the others are nil.
	task     env.Problems
	verdicts env.Verdicts
	heldOut  []env.Problem
	policy   *servedModel
	// change is what becomes of the task and the train step over a run of embedded engines.
	change workload.Change
	// workshop is of the task code, nil else.
	workshop *workshop

	environment port.Environment
	engines     []port.Engine
	trainer     port.Trainer
	greedy      greedyEngine
	// fleet starts and stops engines; nil where they are all there by themselves.
	fleet   *fleet.Fleet
	weights *weights.Store

	// servers are the engines that are servers of their own, in the document's order, and homes where these are; none
	// where engines are embedded.
	servers []*upstream.Engine
	homes   []*upstream.Server
	// hosted is the service of a run that samples and trains at one; nil elsewhere, and before openService.
	hosted *hosted
	// remote is the trainer that other processes come as, workers the environment that others play; nil elsewhere.
	remote  *remote.Trainer
	workers *environment.Environment
	host    host
	// closers close what is open, the last first.
	closers []func() error
}

// greedyEngine answers prompts under a published version.
type greedyEngine interface {
	Greedy(ctx context.Context, v loop.Version, prompts [][]int32, maxTokens int) ([][]int32, error)
}

// newParts makes what needs no directory, so that a bad document leaves none behind: the task and who judges it, or
// the model of engines that are servers. A run that goes on reads dir for the model that it began with.
func newParts(cfg config.Config, dir string, rules loop.Config, logf func(format string, args ...any)) (*parts, error) {
	p := &parts{cfg: cfg, dir: dir, rules: rules, logf: logf}
	if p.logf == nil {
		p.logf = func(string, ...any) {}
	}
	return p, p.prepare()
}

// prepare makes what needs no directory, so that a bad task leaves none behind.
func (p *parts) prepare() error {
	if p.cfg.External() {
		if err := refuseRehearsal(p.cfg); err != nil {
			return err
		}
		if p.cfg.Tinker() {
			return p.prepareHosted()
		}
		return p.prepareServed()
	}
	service, err := p.cfg.ServiceModel()
	if err != nil {
		return err
	}
	prune := env.Pruning{Tokens: p.cfg.Rollout.Prune.Tokens, Failed: p.cfg.Rollout.Prune.Check == "task"}
	if p.change, err = p.cfg.RunChange(); err != nil {
		return err
	}
	if err := p.prepareTask(service, p.change, prune); err != nil {
		return err
	}
	task := p.task
	if err := refuseDrift(p.cfg, task); err != nil {
		return err
	}
	limits := task.Limits()
	if need := limits.PromptTokens + limits.ResponseTokens; need > p.cfg.Model.Context {
		return failure.Usage(fmt.Sprintf("set model.context to at least %d", need),
			"model.context is %d tokens, but %s needs %d for a prompt and %d for its response", p.cfg.Model.Context, task.Name(), limits.PromptTokens, limits.ResponseTokens)
	}
	if p.heldOut, err = env.HeldOutProblems(task, p.cfg.Environment.HeldOut); err != nil {
		return failure.Usage("lower environment.held_out", "%w", err)
	}
	if p.cfg.Evaluate.Prompts > p.cfg.Environment.HeldOut { // which a simulation's may be
		return p.cfg.Refuse("evaluate.prompts", fmt.Sprintf("is above environment.held_out (%d)", p.cfg.Environment.HeldOut), fmt.Sprintf("at most %d", p.cfg.Environment.HeldOut))
	}
	if levels := p.cfg.Filter.Curriculum.Levels; levels > task.Levels() {
		return p.cfg.Refuse("filter.curriculum.levels", fmt.Sprintf("levels are more than %s has", task.Name()), fmt.Sprintf("at most %d, or another task", task.Levels()))
	}
	if _, checks := task.(env.Checker); prune.Failed && !checks {
		return p.cfg.Refuse("rollout.prune.check", fmt.Sprintf("is not possible: %s cannot tell early that an answer will be wrong", task.Name()), "none, or another task")
	}
	return nil
}

// runRules are the loop's rules of a run, which ends by its train steps.
func runRules(cfg config.Config) loop.Config {
	rules := cfg.LoopConfig()
	rules.TrainSteps = loop.Version(cfg.Trainer.Steps)
	return rules
}

func (p *parts) writeConfig() error {
	return replace.File(filepath.Join(p.dir, configFile), p.cfg.Public().YAML(), 0o644)
}

// warmup is how many train steps pass before anything is measured: until the
// first rollouts have gone round and the policy has found its lengths.
func (p *parts) warmup() loop.Version { return warmupSteps(p.cfg.Trainer.Steps) }

func warmupSteps(steps int) loop.Version { return loop.Version(min(steps/5, 50)) }

// evaluate answers held-out prompts greedily with a published version.
func (p *parts) evaluate(ctx context.Context, v loop.Version, prompts int) (float64, error) {
	answer := func(ctx context.Context, prompts [][]int32, maxTokens int) ([][]int32, error) {
		return p.greedy.Greedy(ctx, v, prompts, maxTokens)
	}
	e, err := env.Evaluate(ctx, p.task, p.verdicts, p.heldOut[:min(prompts, len(p.heldOut))], answer)
	return e.Accuracy(), err
}

// evaluateLast judges the run: all held-out prompts, the version it ended with.
func (p *parts) evaluateLast(ctx context.Context, v loop.Version) (accuracy float64, prompts int, err error) {
	accuracy, err = p.evaluate(ctx, v, len(p.heldOut))
	return accuracy, len(p.heldOut), err
}

// onClose has close call a function, before those that were given earlier.
func (p *parts) onClose(closer func() error) { p.closers = append(p.closers, closer) }

// Close closes what is open in the reverse order of opening, at whatever stage of building. The error joins those
// of all parts.
func (p *parts) Close() error {
	var errs []error
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer())
	}
	p.closers = nil
	return errors.Join(errs...)
}
