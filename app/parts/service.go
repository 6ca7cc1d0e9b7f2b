package parts

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

// HostedDir is where a control plane notes in its run directory what its service has saved.
const HostedDir = "tinker"

// basesShown is how many base models of a service are named.
const basesShown = 20

// Service is the service of Tinker's API that samples and trains for a run.
type Service struct {
	session *tinker.Session
	saved   *training.Versions
	// Engine is nil before [Parts.Build]. Base is the base model by the name that the service has for it.
	Engine *sampling.Engine
	Base   string
}

// ServiceOf is how an engine's service is reached.
func ServiceOf(e config.Engine) (tinker.Options, error) {
	o := tinker.Options{URL: e.URL, Patience: config.Seconds(e.SilentS)}
	if e.KeyFile == "" {
		return o, nil
	}
	var err error
	o.Key, err = readSecret(e.KeyFile)
	return o, err
}

// BasesOf asks a service once which base models it has. The error wraps tinker.ErrDown where it may answer later.
func BasesOf(ctx context.Context, o tinker.Options) (bases []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
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
		return nil, fmt.Errorf("%w: no answer within %s", tinker.ErrDown, AnswerLimit)
	case errors.Is(err, tinker.ErrDown) && unreached: // without how often it was asked, which was once
		return nil, fmt.Errorf("%w: %w", tinker.ErrDown, network)
	case errors.Is(err, tinker.ErrDown) && answered:
		return nil, fmt.Errorf("%w: %w", tinker.ErrDown, answer)
	case answered:
		return nil, fmt.Errorf("%w: %w", tinker.ErrRefused, answer)
	}
	return bases, err
}

// BaseOf chooses the base model of a document among those that its service has. The error is why none can be.
func BaseOf(e config.Engine, bases []string) (base, problem, allowed string) {
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

// AnswerLimit bounds one question to a server or a service.
const AnswerLimit = 20 * time.Second

// OpenService begins a stay at a service, for a run whose engine samples there. Versions are committed as long as fence
// permits it.
func (p *Parts) OpenService(session *tinker.Session, base string, fence func() error) (err error) {
	p.Service = &Service{session: session, Base: base}
	p.OnClose(p.Service.Close)
	p.Service.saved, err = training.OpenVersions(filepath.Join(p.Dir, HostedDir), training.VersionsOptions{Delete: session.Delete, Fence: fence, Logf: p.logf})
	return err
}

// Unwelcome reports whether an answer will be the same again: that of a service that refuses the key, or of
// something else than a service. A run that goes on had a
// service there: for it the latter may be a proxy before a service that starts.
func Unwelcome(err error, goesOn bool) bool {
	if errors.Is(err, tinker.ErrDown) {
		return false
	}
	if answer, ok := errors.AsType[*tinker.Error](err); ok && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
		return true
	}
	return !goesOn
}

// buildServiceEngine makes the engine of a run at a service.
func (p *Parts) buildServiceEngine() error {
	e := p.Cfg.Engines[0]
	made, err := sampling.New(sampling.Options{
		Name: e.Name, Slots: e.Slots + p.Cfg.EvaluationSlots(e.Name), Service: sampling.FromSession(p.Service.session), Path: p.Service.saved.SamplerPath, Piece: e.PieceTokens,
		Sampling: p.sampling(), Vocabulary: p.Vocabulary(), Ends: p.policy.checkpoint.Ends, Logf: p.logf,
	})
	if err != nil {
		return err
	}
	p.Service.Engine = made
	p.closesEngines()
	p.Engines = append(p.Engines, made)
	return nil
}

// buildServiceTrainer makes the trainer of a run at a service.
func (p *Parts) buildServiceTrainer() error {
	t := p.Cfg.Trainer
	made, err := training.New(training.Options{
		Session: p.Service.session, Model: tinker.ModelOptions{Base: p.Service.Base, Rank: t.AdapterRank, Seed: int64(p.Cfg.Seed)}, Versions: p.Service.saved, Run: savedName(p.host.Name),
		Seed: p.Cfg.Seed, LearningRate: t.LearningRate, GradientNorm: t.GradientNorm, ClipEpsilon: t.ClipEpsilon, Correction: correction(t.Correction),
		NormalizeStd: t.NormalizeStd, Minibatches: t.Minibatches, ShuffleMinibatches: t.ShuffleMinibatches,
		KeepLogRatios: func(loop.Version) bool { return true }, // to be read, in the dashboard and in samples/
		Logf:          p.logf,
	})
	if err != nil {
		return err
	}
	p.Trainer = retryingTrainer{made, p.host.Rarely}
	p.OnClose(p.Trainer.Close)
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

// retryingTrainer gives a batch back that a service is not there for: no attempt at the step counts, and it is made
// when the service is back, however long that takes.
type retryingTrainer struct {
	*training.Trainer
	logf func(format string, args ...any)
}

// Train implements port.Trainer.
func (t retryingTrainer) Train(ctx context.Context, batch port.Batch) (port.StepReport, error) {
	report, err := t.Trainer.Train(ctx, batch)
	if err != nil && ctx.Err() == nil && errors.Is(err, tinker.ErrDown) {
		t.logf("the batch of version %d goes back and is trained when the service answers: %v", batch.Version, err)
		err = fmt.Errorf("%w: %w", port.ErrLeaseReturned, err)
	}
	return report, err
}

// Restore implements port.Trainer: a service that is not there is waited for.
func (t retryingTrainer) Restore(ctx context.Context, version loop.Version, outstanding loop.LeaseID) error {
	return t.patiently(ctx, func() error { return t.Trainer.Restore(ctx, version, outstanding) })
}

// Initialize implements port.Trainer: a service that is not there is waited for.
func (t retryingTrainer) Initialize(ctx context.Context) error {
	return t.patiently(ctx, func() error { return t.Trainer.Initialize(ctx) })
}

// patiently does what asks the service until it is there, each try as long as the session is patient.
func (t retryingTrainer) patiently(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, tinker.ErrDown) || ctx.Err() != nil {
			return err
		}
		t.logf("the trainer waits for the service: %v", err)
	}
}

// Published keeps the run's versions: as files, or by where a service has saved them.
func (p *Parts) Published() port.Weights {
	if p.Service != nil {
		return p.Service.saved
	}
	return p.Weights
}

// Close ends the stay; engine and trainer are closed before.
func (h *Service) Close() error {
	var err error
	if h.saved != nil { // its deletions ask the session
		err = h.saved.Close()
	}
	return errors.Join(err, h.session.Close())
}

// NewestSaved is the newest version that a run directory says a service has saved, loop.NoVersion for none.
func NewestSaved(run string) (loop.Version, error) {
	dir := filepath.Join(run, HostedDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return loop.NoVersion, nil
	}
	saved, err := training.OpenVersions(dir, training.VersionsOptions{ReadOnly: true})
	if err != nil {
		return loop.NoVersion, err
	}
	return saved.Newest(), saved.Close()
}
