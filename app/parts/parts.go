package parts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/engine/scorer"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/remote"
)

// ConfigFile is the resolved config's name in a run directory, for people and other tools.
const ConfigFile = "config.yaml"

// Parts are the running parts of one run of a document, in one directory.
type Parts struct {
	// Cfg is the resolved document, Dir the run's directory, Rules the loop's rules. Before the loop is there, Adopt may change
	// them, and goroutines of others call Aims.
	Cfg   config.Config
	Dir   string
	Rules loop.Config
	aims  atomic.Pointer[aims]
	logf  func(format string, args ...any) // tells the operator
	// Task, Verdicts and HeldOut are of embedded engines, policy of engines that are servers: the others are nil.
	Task     env.Task
	Verdicts env.ScoreFunc
	HeldOut  []env.Problem
	policy   *servedModel
	// Change is what becomes of the task and the train step over a run of embedded engines.
	Change workload.Change
	// CodeTask is of the task code, nil else.
	CodeTask *CodeTask

	// Environment, Engines and Trainer are the loop's. Greedy answers held-out prompts, nil where engines are servers or the environment alone knows its prompts.
	Environment port.Environment
	Engines     []port.Engine
	Trainer     port.Trainer
	Greedy      Greedy
	// Fleet starts and stops engines; nil where they are all there by themselves.
	Fleet   *fleet.Fleet
	guests  []guest // of the fleet's engines in cells
	Weights *weights.Store
	// Scorer has teachers and references score rollouts; nil where the document names none.
	Scorer *scorer.Pool

	// Upstreams are the engines that are servers of their own, in the document's order, and Servers where these are. There are
	// none where engines are embedded, and nil stands for an engine of another cell: see [Parts.Owns].
	Upstreams []*upstream.Engine
	Servers   []*upstream.Server
	// Service is the service of a run that samples and trains at one; nil elsewhere, and before [Parts.OpenService].
	Service *Service
	// Remote is the trainer that other processes come as, Workers the environment that others play; nil elsewhere.
	Remote  *remote.Trainer
	Workers *environment.Dispatcher
	host    Host
	// closers close what is open, the last first.
	closers []func() error
}

// Greedy answers prompts under a published version.
type Greedy interface {
	Greedy(ctx context.Context, v loop.Version, prompts [][]int32, maxTokens int) ([][]int32, error)
}

// New makes the task with its verifier, or reads the model of engines that are servers. It makes no directory, so that a bad
// document leaves none behind; dir has the model of a run that goes on. It refuses to run code of the policy without a
// boundary: see [UsableDriver]. New tells the operator through logf; nil tells no one.
func New(cfg config.Config, dir string, rules loop.Config, logf func(format string, args ...any)) (*Parts, error) {
	p := &Parts{Dir: dir, logf: logf}
	p.Adopt(cfg, rules)
	if p.logf == nil {
		p.logf = func(string, ...any) {}
	}
	if cfg.UsesSandbox() {
		if _, _, err := UsableDriver(context.Background(), cfg); err != nil {
			return p, err
		}
	}
	return p, p.prepare()
}

// aims are how many train steps a run is to make, and by which policy of its queue.
type aims struct {
	steps  int
	policy string
}

// Adopt takes the settings that a run began with.
func (p *Parts) Adopt(cfg config.Config, rules loop.Config) {
	p.Cfg, p.Rules = cfg, rules
	p.aims.Store(&aims{cfg.Trainer.Steps, cfg.Queue.Policy})
}

// Aims are the train steps that the run is to make, and the policy of its queue. Any goroutine may ask.
func (p *Parts) Aims() (steps int, policy string) {
	a := p.aims.Load()
	return a.steps, a.policy
}

// prepare makes what needs no directory, so that a bad task leaves none behind.
func (p *Parts) prepare() error {
	if p.Cfg.External() {
		if err := p.carriesConnections(machine.Descriptors()); err != nil {
			return err
		}
		if err := refuseRehearsal(p.Cfg); err != nil {
			return err
		}
		if p.Cfg.Tinker() {
			return p.prepareHosted()
		}
		return p.prepareServed()
	}
	service, err := p.Cfg.RunEnvironmentTimes()
	if err != nil {
		return err
	}
	prune := env.Pruning{Tokens: p.Cfg.Rollout.Prune.Tokens, Failed: p.Cfg.Rollout.Prune.Check == "task"}
	if p.Change, err = p.Cfg.RunChange(); err != nil {
		return err
	}
	if err := p.prepareTask(service, p.Change, prune); err != nil {
		return err
	}
	task := p.Task
	if err := refuseDrift(p.Cfg, task); err != nil {
		return err
	}
	if err := p.carriesPolicy(machine.Memory()); err != nil {
		return err
	}
	if err := p.carriesSlots(machine.Memory()); err != nil {
		return err
	}
	limits := task.Limits()
	if need := limits.PromptTokens + limits.ResponseTokens; need > p.Cfg.Model.Context {
		return failure.Usage(fmt.Sprintf("set model.context to at least %d", need),
			"model.context is %d tokens, but %s needs %d for a prompt and %d for its response", p.Cfg.Model.Context, task.Name(), limits.PromptTokens, limits.ResponseTokens)
	}
	if p.HeldOut, err = env.HeldOutProblems(task, p.Cfg.Environment.HeldOut); err != nil {
		return failure.Usage("lower environment.held_out", "%w", err)
	}
	if p.Cfg.Evaluate.Prompts > p.Cfg.Environment.HeldOut { // which a simulation's may be
		return p.Cfg.Refuse("evaluate.prompts", fmt.Sprintf("is above environment.held_out (%d)", p.Cfg.Environment.HeldOut), fmt.Sprintf("at most %d", p.Cfg.Environment.HeldOut))
	}
	if levels := p.Cfg.Filter.Curriculum.Levels; levels > task.Levels() {
		return p.Cfg.Refuse("filter.curriculum.levels", fmt.Sprintf("levels are more than %s has", task.Name()), fmt.Sprintf("at most %d, or another task", task.Levels()))
	}
	if _, checks := task.(env.Checker); prune.Failed && !checks {
		return p.Cfg.Refuse("rollout.prune.check", fmt.Sprintf("is not possible: %s cannot tell early that an answer will be wrong", task.Name()), "none, or another task")
	}
	return nil
}

// RunRules are the loop's rules of a run, which ends by its train steps.
func RunRules(cfg config.Config) loop.Config {
	rules := cfg.LoopConfig()
	rules.TrainSteps = loop.Version(cfg.Trainer.Steps)
	return rules
}

// ServeRules are the loop's rules of a control plane: a remote trainer asks for its batches.
func ServeRules(cfg config.Config) loop.Config {
	rules := RunRules(cfg)
	rules.TrainerAsks = cfg.Trainer.Kind == "remote"
	rules.ResumeRestart = cfg.Environment.Kind != "embedded"
	return rules
}

// WriteConfig writes the resolved document, without its secrets, to [ConfigFile] in the run directory.
func (p *Parts) WriteConfig() error {
	return replace.File(filepath.Join(p.Dir, ConfigFile), p.Cfg.Public().YAML(), 0o600)
}

// Warmup is how many train steps pass before anything is measured: until the
// first rollouts have gone round and the policy has found its lengths.
func (p *Parts) Warmup() loop.Version { return warmupSteps(p.Cfg.Trainer.Steps) }

func warmupSteps(steps int) loop.Version { return loop.Version(min(steps/5, 50)) }

// Evaluate answers held-out prompts greedily with a published version.
func (p *Parts) Evaluate(ctx context.Context, v loop.Version, prompts int) (float64, error) {
	answer := func(ctx context.Context, prompts [][]int32, maxTokens int) ([][]int32, error) {
		return p.Greedy.Greedy(ctx, v, prompts, maxTokens)
	}
	e, err := env.Evaluate(ctx, p.Task, p.Verdicts, p.HeldOut[:min(prompts, len(p.HeldOut))], answer)
	return e.Accuracy(), err
}

// EvaluateLast judges the run: all held-out prompts, the version it ended with.
func (p *Parts) EvaluateLast(ctx context.Context, v loop.Version) (accuracy float64, prompts int, err error) {
	accuracy, err = p.Evaluate(ctx, v, len(p.HeldOut))
	return accuracy, len(p.HeldOut), err
}

// OnClose has close call a function, before those that were given earlier.
func (p *Parts) OnClose(closer func() error) { p.closers = append(p.closers, closer) }

// Close closes what is open in the reverse order of opening; it may be called at any stage of building. The error
// joins those of all parts.
func (p *Parts) Close() error {
	var errs []error
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer())
	}
	p.closers = nil
	return errors.Join(errs...)
}
