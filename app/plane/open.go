package plane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/private"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/weights"
)

// errDeposed ends a writer whose lease another process holds.
var errDeposed = errors.New("another process holds the run's lease")

// open opens the store, waits until this process is the run's writer, and recovers what
// is there; nil for a run that has not begun.
func (p *Plane) open(ctx context.Context, cancel context.CancelCauseFunc) (*live.Resume, error) {
	if err := p.awaitRoom(ctx); err != nil {
		return nil, err
	}
	// A run has prompts and responses: its directory is its owner's alone, unless it was made before.
	if err := private.Make(p.Dir); err != nil {
		return nil, failure.Run("choose another --dir", "%w", err)
	}
	n := p.Cfg.Store.NATS
	mirror := ""
	if p.Cfg.Store.Trace == "full" {
		mirror = trace.Path(p.Dir)
	}
	dir := filepath.Join(p.Dir, origin.NatsDir)
	if n.URL != "" {
		dir = ""
	}
	store, err := jetstream.Open(ctx, jetstream.Options{
		URL: n.URL, Credentials: n.Credentials, TLSCA: n.TLSCA, TLSCert: n.TLSCert, TLSKey: n.TLSKey,
		Dir: dir, Run: p.name, Replicas: n.Replicas,
		LogBytesMax: int64(n.LogBytesMax), PayloadBytesMax: int64(n.PayloadBytesMax), WriterTTL: config.Seconds(n.WriterS),
		Always: p.Cfg.Store.Durability == "always", TracePath: mirror, Logf: p.logf,
	})
	if err != nil {
		return nil, failure.Run(p.damageHint(err), "the store of %s: %w", p.Dir, err)
	}
	p.log = store
	p.OnClose(store.Close)
	if err := p.acquire(ctx, cancel); err != nil {
		return nil, err
	}
	header, began := store.Header()
	if !began {
		if err := p.refuseForeignWeights(); err != nil {
			return nil, err
		}
		return nil, p.WriteConfig()
	}
	if err := p.adopt(header); err != nil {
		return nil, err
	}
	return p.recover(ctx)
}

// refuseForeignWeights keeps a run whose log is empty away from versions that lie in its
// directory: they are of a run whose log is elsewhere.
func (p *Plane) refuseForeignWeights() error {
	if saved, err := parts.NewestSaved(p.Dir); err != nil || saved > 0 {
		return p.foreign(filepath.Join(p.Dir, parts.HostedDir), saved, err)
	}
	dir := filepath.Join(p.Dir, "weights")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	published, err := weights.Open(dir, weights.Options{ReadOnly: true})
	if err != nil {
		return failure.Run("", "%w", err)
	}
	versions, err := published.Versions()
	if err != nil || len(versions) == 0 || versions[len(versions)-1] == 0 {
		return err
	}
	return p.foreign(dir, versions[len(versions)-1], nil)
}

// foreign refuses versions of a run whose log is not here; err is why it is not known whether there are any.
func (p *Plane) foreign(dir string, newest loop.Version, err error) error {
	if err != nil {
		return failure.Run("", "%w", err)
	}
	where := "the store in " + filepath.Join(p.Dir, "state")
	if url := p.Cfg.Public().Store.NATS.URL; url != "" {
		where = "the cluster at " + url
	}
	return failure.Usage("name the cluster that has the run's log (--nats), restore the log from a copy, or begin under another --name",
		"%s has versions up to %d, and %s has no log of a run called %s", dir, newest, where, p.name)
}

// acquire waits for the writer's lease; meanwhile this process stands by.
func (p *Plane) acquire(ctx context.Context, cancel context.CancelCauseFunc) error {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s-%d", host, os.Getpid())
	standby := time.AfterFunc(standbyAfter, func() {
		if p.Cfg.Store.NATS.URL == "" {
			return // nobody else can have the directory: it only takes its time to read it
		}
		p.awaits("the run's writer to give it up", "")
		p.setState(stateStandby)
		p.logf("standing by: another process is the writer of %s", p.name)
	})
	epoch, lost, err := p.log.Acquire(ctx, name)
	if !standby.Stop() && p.Cfg.Store.NATS.URL != "" {
		p.takeover = true
	}
	if err != nil {
		return failure.Run(p.damageHint(err), "the lease of %s: %w", p.name, err)
	}
	p.awaits("the run to be read from its log", "")
	p.setState(stateStarting)
	p.writer.Store(&protocol.Writer{Name: name, Epoch: epoch})
	p.deposed = lost
	go func() {
		select {
		case <-lost:
			cancel(errDeposed)
		case <-ctx.Done():
		}
	}()
	return nil
}

// damageHint says what helps where the log has lost lines that its mirror may have; "" for any other error.
func (p *Plane) damageHint(err error) string {
	if !errors.Is(err, jetstream.ErrLogDamaged) || p.Cfg.Store.NATS.URL != "" || p.Cfg.Store.Trace != "full" {
		return ""
	}
	return fmt.Sprintf("headway restore-log %s writes the log anew from its mirror, and keeps the damaged one", p.Dir)
}

// standbyAfter is how long the lease may take before this process counts as a standby.
const standbyAfter = 300 * time.Millisecond

// adopt goes on with the settings that the run began with. Where it is reached, how it
// is watched and where it is stored may differ from then.
func (p *Plane) adopt(header trace.Header) error {
	began, err := config.ParseRecorded("config of the run "+p.name, []byte(header.Config))
	if err == nil {
		began = began.WithDefaults()
		err = began.Validate()
	}
	if err != nil {
		return failure.Run("was it made by another version of this program?", "the run's own document: %w", err)
	}
	merged := reachedAs(began, p.Cfg)
	if changed := changes(merged, p.Cfg); len(changed) > 0 {
		return failure.Usage("leave these as they were, or begin a run under another --name",
			"%s began with other settings, and only server, watchdog, store, gateway, sandbox and where engines are may change:\n  %s", p.Dir, strings.Join(changed, "\n  "))
	}
	p.Cfg = merged
	p.Rules = serveRules(merged)
	return nil
}

// reachedAs is the document that a run began with, with what the present one says of how it is reached,
// watched and stored, and where its engines are: servers move, and what is sampled stays the same.
func reachedAs(began, now config.Config) config.Config {
	merged := began
	merged.Modelled = now.Modelled // no run reads it
	merged.Server, merged.Watchdog, merged.Store, merged.Gateway = now.Server, now.Watchdog, now.Store, now.Gateway
	merged.Fleet = parts.ReachedFleet(began.Fleet, now.Fleet)
	merged.Sandbox, merged.Environment.Players, merged.Environment.OpenEnv.URL = now.Sandbox, now.Environment.Players, now.Environment.OpenEnv.URL
	if !began.External() || len(now.Engines) != len(began.Engines) {
		return merged
	}
	merged.Model.Path = now.Model.Path
	merged.Engines = slices.Clone(began.Engines)
	for i := range merged.Engines {
		e, n := &merged.Engines[i], now.Engines[i]
		e.Kind, e.URL, e.KeyFile, e.ServedModel, e.WeightsDir = n.Kind, n.URL, n.KeyFile, n.ServedModel, n.WeightsDir
		e.Weights, e.Cache, e.Command, e.Convert, e.SilentS, e.UpdateS, e.PieceTokens = n.Weights, n.Cache, n.Command, n.Convert, n.SilentS, n.UpdateS, n.PieceTokens
	}
	return merged
}

// changes say which values of two documents differ, a few of them.
func changes(before, now config.Config) []string {
	var out []string
	values := map[string]string{}
	for _, leaf := range now.Leaves() {
		values[leaf.Key] = leaf.Value
	}
	for _, leaf := range before.Leaves() {
		if other, there := values[leaf.Key]; !there || other != leaf.Value {
			out = append(out, fmt.Sprintf("%s began as %q, now %q", leaf.Key, leaf.Value, other))
		}
		delete(values, leaf.Key)
	}
	for _, leaf := range now.Leaves() {
		if _, there := values[leaf.Key]; there {
			out = append(out, fmt.Sprintf("%s began without a value, now %q", leaf.Key, leaf.Value))
		}
	}
	const most = 8
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return out
}

// recover rebuilds the run from its newest snapshot and the log after it.
func (p *Plane) recover(ctx context.Context) (*live.Resume, error) {
	resume, err := live.Recover(p.log, func() int64 { return p.App.Now().UnixNano() })
	if err != nil {
		return nil, failure.Run("docs/standby-and-backup.md says what to do about a damaged log", "recovering %s: %w", p.Dir, err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.recovered.Store(&protocol.Recovery{SnapshotSeq: resume.SnapshotEvent, Events: resume.Events, WallS: record.Finite(resume.Seconds), Takeover: p.takeover, Restarts: resume.Restarts})
	for _, line := range record.RecoveryLines(resume) {
		p.logf("%s", line)
	}
	return resume, nil
}
