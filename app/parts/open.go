package parts

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/remote"
)

// Host is what parts are told of the process that they are of; the zero value is of a run in one process.
type Host struct {
	// Cell is the cell that the process is, empty for the control plane. Only its engines are made.
	Cell string
	// Name is the run's; clock, in nanoseconds, counts how long a trainer holds a batch and a worker a claim. Nil means
	// the process's, for claims.
	Name  string
	Clock func() int64
	// Epoch is the writer's, which versions are committed under. Fence says why this process may not be the writer any more: it
	// commits no version then. Replaced says why another process may be in the place of this one, and may wait for an answer.
	// This process changes no engine's weights then, and gives no rollout up for good.
	Epoch    uint64
	Fence    func() error
	Replaced func(ctx context.Context) error
	// Blobs keeps the rows of side channels; nil for a run that keeps none.
	Blobs port.Blobs
	// Turns keeps claims and turns of workers' rollouts; nil keeps none.
	Turns port.Turns
	// Sender has the tensors of engines that take them over a collective. Groups remembers which groups their servers
	// are in. Confirm says whether a version is with the sender.
	Sender  upstream.Sender
	Groups  upstream.CollectiveRegistry
	Confirm func(ctx context.Context, name string, version loop.Version) error
	// Traceparent tells a server whose call it is; nil where no spans are sent.
	Traceparent func(port.RolloutID) string
	// Heard says why a cell is not heard now, nil while it is; it is needed where a fleet starts engines of cells.
	Heard func(cell string) error
	// Rarely is logf for what would say the same at every try.
	Rarely func(format string, args ...any)
	// Staged has an engine hold a version when its stages on other nodes do; nil for none.
	Staged func(port.Engine) port.Engine
	// Ready and restored are told of a trainer in another process that came, and of the version that it goes on from.
	Ready    func()
	Restored func(loop.Version)
	// ReadyGroups has the groups that can be trained, for those who fetch them; nil for none.
	ReadyGroups remote.Groups
}

// Build opens the weights, and makes engines, trainer and environment.
func (p *Parts) Build(h Host) error {
	p.host = h
	steps := []func() error{p.openWeights, p.openEngines, p.openScorer, p.openTrainer, p.openEnvironment}
	if h.Cell != "" {
		steps = []func() error{p.openWeights, p.openEngines, p.openScorer, p.openEnvironment}
	}
	for _, open := range steps {
		if err := open(); err != nil {
			return err
		}
	}
	return nil
}

// Owns reports whether an engine is of this process, which alone speaks to it.
func (p *Parts) Owns(engine int) bool { return p.Cfg.Engines[engine].Cell == p.host.Cell }

// Present is the time in which this process could hear others, in nanoseconds; nil for a run in one process.
func (p *Parts) Present() func() int64 { return p.host.Clock }

// EvaluationSlots are the slots of evaluate.slots, by engine. Those of other processes have none here.
func (p *Parts) EvaluationSlots() []int {
	slots := make([]int, len(p.Engines))
	for i, engine := range p.Engines {
		if p.Owns(i) {
			slots[i] = p.Cfg.EvaluationSlots(engine.Name())
		}
	}
	return slots
}

// OwnsAny reports whether any engine is of this process.
func (p *Parts) OwnsAny() bool {
	return slices.ContainsFunc(p.Cfg.Engines, func(e config.Engine) bool { return e.Cell == p.host.Cell })
}

// OwnUpstreams are the engines of this process that are servers of their own.
func (p *Parts) OwnUpstreams() (own []*upstream.Engine) {
	for _, e := range p.Upstreams {
		if e != nil {
			own = append(own, e)
		}
	}
	return own
}

// openEngines makes the engines of the document.
func (p *Parts) openEngines() error {
	if p.Service != nil { // whose versions no stage elsewhere could have
		return p.buildServiceEngine()
	}
	make := p.buildEngines
	if p.policy != nil {
		make = p.buildServers
	}
	if err := make(); err != nil {
		return err
	}
	if p.host.Staged != nil {
		for i, e := range p.Engines {
			if p.Owns(i) {
				p.Engines[i] = p.host.Staged(e)
			}
		}
	}
	return nil
}

// openWeights opens the run's versions, where they are files.
func (p *Parts) openWeights() (err error) {
	if p.Service != nil {
		return nil
	}
	p.Weights, err = weights.Open(filepath.Join(p.Dir, "weights"), weights.Options{Always: p.Cfg.Store.Durability == "always", Directories: p.Cfg.Server.Directories,
		Beside: p.host.Cell != "", Epoch: p.host.Epoch, Fence: p.host.Fence, Logf: p.logf})
	return err
}

// openTrainer makes the trainer: inside this process, at a service, or one that other processes come as.
func (p *Parts) openTrainer() (err error) {
	if p.Service != nil {
		return p.buildServiceTrainer()
	}
	if p.policy == nil && p.Cfg.Trainer.Kind == "embedded" {
		return p.buildTrainer()
	}
	opt := remote.Options{
		Weights: p.Weights, Clock: p.host.Clock, Lease: config.Seconds(p.Cfg.Server.LeaseS), SyncEvery: p.Rules.SyncEvery,
		Steps: p.Cfg.Trainer.Steps, Run: p.host.Name, Config: p.documentJSON(), NormalizeStd: p.Cfg.Trainer.NormalizeStd, Vocabulary: p.Vocabulary(),
		Groups: p.host.ReadyGroups, Blobs: p.host.Blobs, Channels: p.askedChannels, OnReady: p.host.Ready, OnRestored: p.host.Restored,
		Validation: p.validation, Fence: p.host.Fence, Logf: p.logf,
	}
	opt.Collective = p.host.Confirm
	if p.policy != nil {
		opt.Initial = p.initialVersion()
	} else {
		embedded, err := NewTrainer(p.Cfg, p.Task, p.Change, p.Weights)
		if err != nil {
			return err
		}
		opt.Initial = embedded.Initialize // the engines' own model, untrained
	}
	if p.Remote, err = remote.New(opt); err != nil {
		return err
	}
	p.Trainer = p.Remote
	p.OnClose(p.Remote.Close)
	return nil
}

// PlayerName is what players inside a control plane or a cell call themselves.
const PlayerName = "headway-serve"

// openEnvironment makes the environment of workers in other processes; the embedded one was made before.
func (p *Parts) openEnvironment() (err error) {
	if p.Cfg.Environment.Kind == "embedded" {
		return nil
	}
	g, player := p.Cfg.Gateway, ""
	if p.Cfg.Environment.Played() {
		player = PlayerName
	}
	p.Workers, err = environment.New(environment.Options{
		Name: p.Cfg.EnvironmentName(), Seed: p.Cfg.Seed, ClaimTTL: config.Seconds(p.Cfg.Server.ClaimS), Vocabulary: p.Vocabulary(), Limits: p.Limits(),
		Sampling: p.sampling(), ClientSampling: g.ClientSampling, PolicyOnly: p.policy == nil, TurnWait: config.Seconds(g.WaitS), RoomBytesMax: machine.Memory() / 8, Newest: p.newestServed, Clock: p.host.Clock, Replaced: p.host.Replaced, Turns: p.host.Turns, Player: player,
	})
	if err != nil {
		return err
	}
	p.Environment = p.Workers
	p.OnClose(func() error {
		p.Workers.Close()
		return nil
	})
	return nil
}

// newestServed is the newest version that an engine may have sampled with. One that went over a
// collective has no weights in the store.
func (p *Parts) newestServed() loop.Version {
	if p.Service != nil {
		return p.Service.saved.Newest()
	}
	if !slices.ContainsFunc(p.Cfg.Engines, ByCollective) {
		return p.Weights.Newest()
	}
	versions, err := p.Weights.Versions()
	if err != nil || len(versions) == 0 {
		return loop.NoVersion
	}
	return versions[len(versions)-1]
}

// documentJSON is the run's document as JSON, for clients without a YAML parser.
func (p *Parts) documentJSON() string {
	text, err := json.Marshal(p.Cfg.Shown())
	if err != nil {
		return "{}"
	}
	return string(text)
}

// validation answers held-out prompts greedily with the newest version that has weights.
func (p *Parts) validation(ctx context.Context, prompts int) ([]port.Sample, error) {
	if p.Greedy == nil {
		return nil, protocol.Refuse(protocol.CodeNotFound, "this run has no held-out prompts that it can ask: only its environment knows its prompts; evaluate there, or set evaluate.slots")
	}
	if prompts <= 0 || prompts > len(p.HeldOut) {
		prompts = min(p.Cfg.Evaluate.Prompts, len(p.HeldOut))
	}
	version := p.Weights.Newest()
	questions := make([][]int32, prompts)
	for i := range questions {
		questions[i] = p.HeldOut[i].Prompt
	}
	answers, err := p.Greedy.Greedy(ctx, version, questions, p.Task.Limits().ResponseTokens)
	if err != nil {
		return nil, err
	}
	scores, err := p.Verdicts(ctx, p.HeldOut[:prompts], answers)
	if err != nil {
		return nil, err
	}
	out := make([]port.Sample, prompts)
	for i, answer := range answers {
		out[i] = env.HeldOutSample(p.Task, p.HeldOut[i], i, version, answer, scores[i])
	}
	return out, nil
}
