package plane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
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
	o := parts.Store(p.Cfg, p.Dir, filepath.Join(p.Dir, origin.NatsDir))
	o.Replicas, o.WriterTTL = n.Replicas, config.Seconds(n.WriterS)
	o.LogBytesMax, o.PayloadBytesMax = int64(n.LogBytesMax), int64(n.PayloadBytesMax)
	o.Always, o.TracePath, o.Logf = p.Cfg.Store.Durability == "always", mirror, p.logf
	o.CellTurns = p.Rules.ResumeRestart && p.Rules.EngineCells != nil
	store, err := jetstream.Open(ctx, o)
	if err != nil {
		return nil, failure.Run(p.damageHint(err), "the store of %s: %w", p.Dir, err)
	}
	p.log = store
	p.OnClose(store.Close)
	if n.Listen != "" {
		p.logf("cells enter the NATS server at %s, each by the file nats.pem in its directory", n.Listen)
	}
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
	if n := p.Cfg.Public().Store.NATS; !n.Inside() {
		where = "the cluster at " + n.URL
	}
	return failure.Usage("name the cluster that has the run's log (--nats), restore the log from a copy, or begin under another --name",
		"%s has versions up to %d, and %s has no log of a run called %s", dir, newest, where, p.name)
}

// acquire waits for the writer's lease; meanwhile this process stands by.
func (p *Plane) acquire(ctx context.Context, cancel context.CancelCauseFunc) error {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s-%d", host, os.Getpid())
	inside, said := p.Cfg.Store.NATS.Inside(), make(chan struct{})
	standby := time.AfterFunc(standbyAfter, func() {
		defer close(said)
		if inside {
			return // nobody else can have the directory: it only takes its time to read it
		}
		p.awaits("the run's writer to give it up", "")
		p.setState(stateStandby)
		p.logf("standing by: another process is the writer of %s", p.name)
	})
	epoch, lost, err := p.log.Acquire(ctx, name)
	if !standby.Stop() {
		<-said // or it would say so later
		p.takeover = p.takeover || !inside
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
	if !errors.Is(err, jetstream.ErrLogDamaged) || !p.Cfg.Store.NATS.Inside() || p.Cfg.Store.Trace != "full" {
		return ""
	}
	return fmt.Sprintf("headway restore-log %s writes the log anew from its mirror, and keeps the damaged one", printable.Word(p.Dir))
}

// standbyAfter is how long the lease may take before this process counts as a standby.
const standbyAfter = 300 * time.Millisecond

// adopt goes on with the settings that the run began with.
func (p *Plane) adopt(header trace.Header) error {
	merged, rules, err := origin.Adopt(p.name, p.Dir, "leave these as they were, or begin a run under another --name", header, p.Cfg)
	if err == nil {
		p.Adopt(merged, rules)
	}
	return err
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
