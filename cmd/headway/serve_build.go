package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/env"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/transfer"
	"github.com/headway-rl/headway/store/weights"
	remote "github.com/headway-rl/headway/train/remote"
)

// serverOptions are the API's, checked before anything runs.
func (p *plane) serverOptions() (api.Options, error) {
	s := p.cfg.Server
	opt := api.Options{
		Version: currentBuild().Version, Pages: dashboard.Pages(), Directories: s.Directories, BodyBytesMax: int64(s.BodyBytesMax), WeightsBytesMax: int64(s.WeightsBytesMax),
		Drain: 5 * time.Second, Logf: p.say, LogPayloads: s.LogPayloads,
	}
	if p.app.Getenv("HEADWAY_DEBUG") != "" {
		opt.Debugf = p.say
	}
	if s.TokenFile != "" {
		tokens, err := api.ReadTokens(s.TokenFile)
		if err != nil {
			return opt, failure.Usage("", "%w", err)
		}
		opt.Tokens = tokens
	}
	if s.TLSCert != "" {
		tls, err := api.LoadTLS(s.TLSCert, s.TLSKey)
		if err != nil {
			return opt, failure.Usage("", "%w", err)
		}
		opt.TLS = tls
	}
	return opt, nil
}

// assemble builds the run's parts around an opened store.
func (p *plane) assemble(resume *live.Resume) (err error) {
	upTo := loop.Version(0)
	if resume != nil {
		upTo = resume.Loop.Version()
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "samples"), 0o755); err != nil {
		return err
	}
	p.samples = &sampleWriter{dir: filepath.Join(p.dir, "samples"), every: p.cfg.Store.SamplesEvery, spell: p.spelling(), std: p.cfg.Trainer.NormalizeStd}
	if p.steps, err = openStepLog(p.dir, upTo); err != nil {
		return err
	}
	p.tellBy(p.say)
	if err := p.openSinks(); err != nil {
		return err
	}
	if err := p.openWeights(); err != nil {
		return err
	}
	p.source = &transfer.Source{}
	p.meetings = collective.NewRendezvous(collective.RendezvousOptions{})
	p.receivers = transfer.NewCoordinator(transfer.Options{Origin: transferPrefix, Engines: p.engineNames()})
	p.buildSenders()
	if err := p.buildPlaneEngines(); err != nil {
		return err
	}
	if p.hosted == nil { // whose versions no stage elsewhere could have
		for i, e := range p.engines {
			p.engines[i] = p.staged(e)
		}
	}
	if err := p.buildTrainer(); err != nil {
		return err
	}
	if err := errors.Join(p.buildEnvironment(), p.buildGateway()); err != nil {
		return err
	}
	return p.writeAddress()
}

// openWeights opens the run's versions, where they are files.
func (p *plane) openWeights() (err error) {
	if p.hosted != nil {
		return nil
	}
	p.weights, err = weights.Open(filepath.Join(p.dir, "weights"), weights.Options{Always: p.cfg.Store.Sync == "always", Directories: p.cfg.Server.Directories,
		Epoch: p.writerNow().Epoch, Fence: p.fence, Logf: p.say})
	return err
}

// engineNames are those of the document.
func (p *plane) engineNames() []string {
	names := make([]string, len(p.cfg.Engines))
	for i, e := range p.cfg.Engines {
		names[i] = e.Name
	}
	return names
}

func (p *plane) buildTrainer() (err error) {
	if p.hosted != nil {
		return p.buildHostedTrainer()
	}
	opt := remote.Options{
		Weights: p.weights, Clock: clock(p.app, 0), Lease: lasting(p.cfg.Server.LeaseS), SyncEvery: p.rules.SyncEvery,
		Steps: p.cfg.Trainer.Steps, Run: p.name, Config: p.documentJSON(), NormalizeStd: p.cfg.Trainer.NormalizeStd, Vocabulary: p.vocabulary(),
		OnReady:    func() { p.withRuntime(func(r *live.Runtime) { r.TrainerReady() }) },
		OnRestored: func(v loop.Version) { p.withRuntime(func(r *live.Runtime) { r.TrainerRestored(v) }) },
		Validation: p.validation, Fence: p.fence, Logf: p.say,
	}
	if p.senders != nil {
		opt.Collective = p.confirmSent
	}
	if p.policy != nil {
		opt.Initial = p.initialVersion()
	} else {
		embedded, err := p.newTrainer(p.weights)
		if err != nil || p.cfg.Trainer.Kind == "embedded" {
			p.trainer = embedded
			return err
		}
		opt.Initial = embedded.Initialize // the engines' own model, untrained
	}
	p.remote, err = remote.New(opt)
	p.trainer = p.remote
	return err
}

// fence refuses to commit a version once this process is not the run's writer any more, or
// may not be.
func (p *plane) fence() error {
	select {
	case <-p.deposed:
		return errDeposed
	default:
		return p.log.Holding()
	}
}

// withRuntime calls f once the run is there.
func (p *plane) withRuntime(f func(*live.Runtime)) {
	if run := p.runtime.Load(); run != nil {
		f(run)
	}
}

func (p *plane) buildEnvironment() (err error) {
	if p.cfg.Environment.Kind == "embedded" {
		return nil // prepare has made the embedded one
	}
	g := p.cfg.Gateway
	p.workers, err = environment.New(environment.Options{
		Name: p.cfg.EnvironmentName(), Seed: p.cfg.Seed, ClaimTTL: lasting(p.cfg.Server.ClaimS), Vocabulary: p.vocabulary(), Limits: p.limits(),
		Sampling: p.sampling(), ClientSampling: g.ClientSampling, PolicyOnly: p.policy == nil, TurnWait: lasting(g.WaitS), Newest: p.newestServed,
	})
	p.environment = p.workers
	return err
}

// newestServed is the newest version that an engine may have sampled with. One that went over a
// collective has no weights in the store.
func (p *plane) newestServed() loop.Version {
	if p.hosted != nil {
		return p.hosted.saved.Newest()
	}
	if p.senders == nil {
		return p.weights.Newest()
	}
	versions, err := p.weights.Versions()
	if err != nil || len(versions) == 0 {
		return loop.NoVersion
	}
	return versions[len(versions)-1]
}

// mount opens the API's paths over the run.
func (p *plane) mount() error {
	ports := api.Ports{Plane: p, View: p.shown.model.Data()}
	if p.hosted == nil {
		ports.Versions, ports.Meetings = remote.Versions{Store: p.weights}, p.meetings
		ports.Receivers, ports.Chunks = p.receivers, p.source.Handler(transferPrefix)
	}
	if p.remote != nil {
		ports.Trainers = p.remote
	}
	if p.senders != nil {
		ports.Senders = p.senders
	}
	if p.rules.Control != nil {
		ports.Settings = p
	}
	if p.workers != nil {
		ports.Rollouts = p.workers
	}
	if p.gateway != nil {
		ports.Gateway = p.gateway
	}
	if p.stage != nil && p.stage.pool != nil {
		ports.Sandboxes = p.stage.pool
	}
	if p.workshop != nil && p.workshop.pool != nil {
		ports.Sandboxes = p.workshop.pool
	}
	return p.server.Mount(ports)
}

// runtimeOptions are the live runtime's.
func (p *plane) runtimeOptions(ctx context.Context, resume *live.Resume) live.Options {
	view := newProgressView(p.app, progressOptions{Plain: true}, p.intro())
	opt := live.Options{
		Header:  p.header(),
		Engines: p.engines, Environment: p.environment, Trainer: p.trainer, Weights: p.published(), Store: p.log, Resume: resume,
		OnStep: func(d live.StepDone) {
			p.onStep(ctx, d, view)
			p.send(newStepLine(d))
		},
		OnBatch: func(b port.Batch) {
			if err := p.samples.write(b); err != nil {
				p.say("samples: %v", err)
			}
		},
		OnBroken:   func(bundle []byte) { p.say("%s", writeBroken(p.dir, bundle)) },
		OnDiskFull: p.onDiskFull, OnSync: p.onSync, Logf: p.say, RejoinAfter: time.Second, Patient: true,
		KeepVersions: p.cfg.Store.KeepVersions, SnapshotSteps: p.cfg.Store.SnapshotEvery,
	}
	offset := int64(0)
	if resume != nil {
		offset = resume.Loop.Status().TimeNS
	}
	opt.Clock = clock(p.app, offset)
	p.withFleet(&opt)
	p.shown.watch(&opt)
	return opt
}

// onSync tells status, metrics and viewers how long a weight sync took.
func (p *plane) onSync(d live.SyncDone) {
	if len(d.Engines) == 0 { // all of them were lost on the way
		p.say("version %d is served by no engine: loads or switches failed %s; engines take the newest version when they are back", d.Version, report.Counted(d.Failed, "time"))
		return
	}
	s := protocol.Sync{Version: d.Version, LoadS: float64(d.LoadNS) / 1e9, WaitS: float64(d.WaitNS) / 1e9, SwitchS: float64(d.SwitchNS) / 1e9, TotalS: float64(d.TotalNS) / 1e9, Failed: d.Failed}
	p.synced.Store(&s)
	p.server.ObserveSync(s)
	p.send(map[string]any{"kind": "served", "version": d.Version, "sync": s})
}

func (p *plane) onDiskFull(cause error) {
	if cause != nil {
		p.say("no room in %s%s: %v. The run waits, nothing is lost; free space or raise store.nats.payload_bytes_max or log_bytes_max", p.dir, freeWords(p.dir), cause)
	} else {
		p.say("there is room again: going on")
	}
}

// validation answers held-out prompts greedily with the newest version that has weights.
func (p *plane) validation(ctx context.Context, prompts int) ([]port.Sample, error) {
	if p.greedy == nil {
		return nil, protocol.Refuse(protocol.CodeNotFound, "this run has no held-out prompts: its engines are servers, and only your environment knows its prompts; evaluate there")
	}
	if prompts <= 0 || prompts > len(p.heldOut) {
		prompts = min(p.cfg.Evaluate.Prompts, len(p.heldOut))
	}
	version := p.weights.Newest()
	questions := make([][]int32, prompts)
	for i := range questions {
		questions[i] = p.heldOut[i].Prompt
	}
	answers, err := p.greedy.Greedy(ctx, version, questions, p.task.Limits().ResponseTokens)
	if err != nil {
		return nil, err
	}
	scores, err := p.verdicts(ctx, p.heldOut[:prompts], answers)
	if err != nil {
		return nil, err
	}
	out := make([]port.Sample, prompts)
	for i, answer := range answers {
		out[i] = env.HeldOutSample(p.task, p.heldOut[i], i, version, answer, scores[i])
	}
	return out, nil
}
