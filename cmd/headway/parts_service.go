package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/config"
	sampling "github.com/headway-rl/headway/engine/tinker"
	"github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	training "github.com/headway-rl/headway/train/tinker"
)

// hostedDir is where a control plane notes in its run directory what its service has saved.
const hostedDir = "tinker"

// basesShown is how many base models of a service are named.
const basesShown = 20

// hosted is the service of Tinker's API that samples and trains for a run.
type hosted struct {
	session *tinker.Session
	saved   *training.Versions
	// engine is nil before buildPlaneEngines. base is the base model by the service's name.
	engine *sampling.Engine
	base   string
}

// serviceOf is how an engine's service is reached.
func serviceOf(e config.Engine) (tinker.Options, error) {
	o := tinker.Options{URL: e.URL, Patience: lasting(e.SilentS)}
	if e.KeyFile == "" {
		return o, nil
	}
	var err error
	o.Key, err = readSecret(e.KeyFile)
	return o, err
}

// basesOf asks a service once which base models it has. The error wraps tinker.ErrDown where it may answer later.
func basesOf(ctx context.Context, o tinker.Options) (bases []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	o.Patience, o.Logf = time.Nanosecond, nil
	session, err := tinker.Open(ctx, o)
	if err == nil {
		bases, err = session.Bases(ctx)
		err = errors.Join(err, session.Close())
	}
	network, unreached := errors.AsType[*url.Error](err)
	answer, answered := errors.AsType[*tinker.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: no answer within %s", tinker.ErrDown, answerLimit)
	case errors.Is(err, tinker.ErrDown) && unreached: // without how often it was asked, which was once
		return nil, fmt.Errorf("%w: %w", tinker.ErrDown, network)
	case errors.Is(err, tinker.ErrDown) && answered:
		return nil, fmt.Errorf("%w: %w", tinker.ErrDown, answer)
	case answered:
		return nil, fmt.Errorf("%w: %w", tinker.ErrRefused, answer)
	}
	return bases, err
}

// baseOf chooses the base model of a document among those that its service has. The error is why none can be.
func baseOf(e config.Engine, bases []string) (base, problem, allowed string) {
	shown := strings.Join(bases[:min(len(bases), basesShown)], ", ")
	if more := len(bases) - basesShown; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case e.ServedModel != "" && (len(bases) == 0 || slices.Contains(bases, e.ServedModel)):
		return e.ServedModel, "", ""
	case e.ServedModel != "":
		return "", fmt.Sprintf("is no base model of the service: %q", e.ServedModel), shown
	case len(bases) == 1:
		return bases[0], "", ""
	case len(bases) == 0:
		return "", "is missing, and the service names no base model", "the base model by the service's name"
	}
	return "", fmt.Sprintf("is missing, and the service has %d base models", len(bases)), shown
}

// answerLimit bounds one question to a server or a service.
const answerLimit = 20 * time.Second

// openService begins a stay at a service, for a run whose engine samples there. fence refuses to commit a version once
// this process is not the run's writer any more.
func (p *parts) openService(session *tinker.Session, base string, fence func() error) (err error) {
	p.hosted = &hosted{session: session, base: base}
	p.onClose(p.hosted.Close)
	p.hosted.saved, err = training.OpenVersions(filepath.Join(p.dir, hostedDir), training.VersionsOptions{Delete: session.Delete, Fence: fence, Logf: p.logf})
	return err
}

// unwelcome reports whether an answer will be the same again: that of a service that refuses the key, or of
// something else than a service. To a run that goes on, whose service was one, the latter may be a proxy before a service
// that is being started.
func unwelcome(err error, goesOn bool) bool {
	if errors.Is(err, tinker.ErrDown) {
		return false
	}
	if answer, ok := errors.AsType[*tinker.Error](err); ok && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
		return true
	}
	return !goesOn
}

// buildServiceEngine makes the engine of a run at a service.
func (p *parts) buildServiceEngine() error {
	e := p.cfg.Engines[0]
	made, err := sampling.New(sampling.Options{
		Name: e.Name, Slots: e.Slots, Service: sampling.FromSession(p.hosted.session), Path: p.hosted.saved.SamplerPath, Piece: e.PieceTokens,
		Sampling: p.sampling(), Vocabulary: p.vocabulary(), Ends: p.policy.checkpoint.Ends, Logf: p.logf,
	})
	if err != nil {
		return err
	}
	p.hosted.engine = made
	p.closesEngines()
	p.engines = append(p.engines, made)
	return nil
}

// buildServiceTrainer makes the trainer of a run at a service.
func (p *parts) buildServiceTrainer() error {
	t := p.cfg.Trainer
	made, err := training.New(training.Options{
		Session: p.hosted.session, Model: tinker.ModelOptions{Base: p.hosted.base, Rank: t.AdapterRank, Seed: int64(p.cfg.Seed)}, Versions: p.hosted.saved, Run: savedName(p.host.name),
		Seed: p.cfg.Seed, LearningRate: t.LearningRate, GradientNorm: t.GradientNorm, ClipEpsilon: t.ClipEpsilon, Correction: correction(t.Correction),
		NormalizeStd: t.NormalizeStd, Minibatches: t.Minibatches, ShuffleMinibatches: t.ShuffleMinibatches,
		KeepLogRatios: func(loop.Version) bool { return true }, // to be read, in the dashboard and in samples/
		Logf:          p.logf,
	})
	if err != nil {
		return err
	}
	p.trainer = patientTrainer{made, p.host.rarely}
	p.onClose(p.trainer.Close)
	return nil
}

// savedNameMax is how long a name is that every service takes with a version behind it.
const savedNameMax = 64

// savedName is a run's name in letters that every service takes for what it saves.
func savedName(run string) string {
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '-'
	}, run)
	return plain[:min(len(plain), savedNameMax)]
}

// patientTrainer gives a batch back that a service is not there for: no attempt at the step counts, and it is made
// when the service is back, however long that takes.
type patientTrainer struct {
	*training.Trainer
	say func(format string, args ...any)
}

// Train implements port.Trainer.
func (t patientTrainer) Train(ctx context.Context, batch port.Batch) (port.StepReport, error) {
	report, err := t.Trainer.Train(ctx, batch)
	if err != nil && ctx.Err() == nil && errors.Is(err, tinker.ErrDown) {
		t.say("the batch of version %d goes back and is trained when the service answers: %v", batch.Version, err)
		err = fmt.Errorf("%w: %w", port.ErrLeaseReturned, err)
	}
	return report, err
}

// Restore implements port.Trainer: a service that is not there is waited for.
func (t patientTrainer) Restore(ctx context.Context, version loop.Version) error {
	return t.patiently(ctx, func() error { return t.Trainer.Restore(ctx, version) })
}

// Initialize implements port.Trainer: a service that is not there is waited for.
func (t patientTrainer) Initialize(ctx context.Context) error {
	return t.patiently(ctx, func() error { return t.Trainer.Initialize(ctx) })
}

// patiently does what asks the service until it is there, each try as long as the session is patient.
func (t patientTrainer) patiently(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, tinker.ErrDown) || ctx.Err() != nil {
			return err
		}
		t.say("the trainer waits for the service: %v", err)
	}
}

// published keeps the run's versions: as files, or by where a service has saved them.
func (p *parts) published() port.Weights {
	if p.hosted != nil {
		return p.hosted.saved
	}
	return p.weights
}

// Close ends the stay; engine and trainer are closed before.
func (h *hosted) Close() error {
	var err error
	if h.saved != nil { // its deletions ask the session
		err = h.saved.Close()
	}
	return errors.Join(err, h.session.Close())
}

// newestSaved is the newest version that a run directory says a service has saved, loop.NoVersion for none.
func newestSaved(run string) (loop.Version, error) {
	dir := filepath.Join(run, hostedDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return loop.NoVersion, nil
	}
	saved, err := training.OpenVersions(dir, training.VersionsOptions{ReadOnly: true})
	if err != nil {
		return loop.NoVersion, err
	}
	return saved.Newest(), saved.Close()
}
