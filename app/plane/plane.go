package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/player"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/transfer"
	"github.com/headway-rl/headway/store/weights"
)

// States of a control plane, as its status has them.
const (
	stateStarting = "starting"
	stateStandby  = "standby"
	StateRunning  = "running"
	StateDraining = "draining"
	stateStopped  = "stopped"
	stateFailed   = "failed"
)

// Plane is a control plane: a run whose parts may be in other processes.
type Plane struct {
	*record.Record
	name     string
	listener net.Listener
	server   *api.Server
	log      *jetstream.Store

	// suspected asks for a look at the engines' servers.
	suspected chan struct{}
	// used measures the processor time of this process, cells has what is known of the cells in others.
	used  parts.Processor
	cells cells
	// gateway is nil where the environment is embedded, which speaks to nobody.
	gateway *gateway.Gateway
	// player plays the rollouts here; nil where workers elsewhere do, or none.
	player    *player.Player
	meetings  *collective.Rendezvous
	receivers *transfer.Coordinator
	// senders is nil where no engine takes its weights from one; groups are those that such engines are in.
	senders *collective.Coordinator
	groups  *fileRegistry
	source  *transfer.Source
	// offering guards what is made of a version for receivers; objects is nil until it is used.
	offering sync.Mutex
	objects  *weights.Remote

	state     atomic.Pointer[string]
	runtime   atomic.Pointer[live.Runtime]
	stall     atomic.Pointer[protocol.Stall]
	held      atomic.Pointer[protocol.Finding]
	waiting   atomic.Pointer[startWait]
	recovered atomic.Pointer[protocol.Recovery]
	synced    atomic.Pointer[protocol.Sync]
	writer    atomic.Pointer[protocol.Writer]
	// present is the time in which this process could answer, in nanoseconds: see beginPresence. absent is what was
	// said of it last. noRoom: the run waits for room in its store.
	present func() int64
	absent  bool
	noRoom  atomic.Bool
	// refused: since the clock's last tick somebody was told that this process cannot answer now.
	refused atomic.Bool
	// takeover: another process was the writer when this one began.
	takeover bool
	// deposed is closed when this process is the writer no more.
	deposed <-chan struct{}
	eventStream
	messages app.Messages
	// sizes are the bytes of published versions, which never change.
	sizes sync.Map
}

// New checks what can be checked without the run, of a document, the run's directory and its name. The API is
// served on listener.
func New(a *app.Process, around record.Surroundings, cfg config.Config, dir, name string, listener net.Listener) (*Plane, error) {
	workers, cfg, err := player.New(cfg, around.Columns)
	if err != nil {
		return nil, err
	}
	p := &Plane{Record: record.New(a, around), name: name, listener: listener, player: workers, suspected: make(chan struct{}, 1)}
	p.setState(stateStarting)
	if p.Parts, err = parts.New(cfg, dir, parts.ServeRules(cfg), p.logf); err != nil {
		return nil, errors.Join(err, workers.Close())
	}
	p.OnClose(workers.Close)
	if !p.OwnsAny() {
		p.player = nil // all is played in cells
	}
	opt, err := p.ServerOptions(name, "", around.Version, a.Getenv("HEADWAY_DEBUG") != "")
	if err == nil {
		opt.Pages = dashboard.Pages()
		p.server, err = api.New(opt, api.Ports{Plane: p})
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Serve runs the control plane to its end, and has its last status printed; nil tells it to the operator in words.
func (p *Plane) Serve(ctx context.Context, cancel context.CancelCauseFunc, print func(protocol.Status) error) error {
	serving := make(chan error, 1)
	httpContext, stopHTTP := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHTTP()
	go func() {
		err := p.server.Serve(httpContext, p.listener)
		if err != nil {
			cancel(err) // nobody could reach the run any more
		}
		serving <- err
	}()
	p.logf("%s: listening on %s", p.Dir, p.url())
	err := p.run(ctx, cancel)
	if err == nil {
		drained := p.currentState() == StateDraining
		p.setState(stateStopped)
		if p.finished() {
			err = p.writeAddress()
		}
		p.farewell(ctx, drained)
	} else {
		p.setState(stateFailed)
		if p.Workers != nil {
			p.Workers.Close() // its calls need not wait for the log any more
		}
	}
	stopHTTP()
	return errors.Join(err, <-serving, p.summary(err, print))
}

// run opens the store as its writer, recovers what is there, and runs the loop.
func (p *Plane) run(ctx context.Context, cancel context.CancelCauseFunc) error {
	resume, err := p.open(ctx, cancel)
	if err != nil && ctx.Err() != nil {
		return endedBefore(p.Dir, ctx)
	}
	if err != nil {
		return err
	}
	p.awaits("", "")
	ticking, stopTicking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTicking()
	p.beginPresence(ticking)
	if err := p.openHosted(ctx, resume != nil); err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		return endedBefore(p.Dir, ctx)
	}
	if err := p.assemble(resume); err != nil {
		return err
	}
	for _, await := range []func(context.Context, bool) error{p.awaitServers, p.awaitScorers} {
		within, asked := asking(ctx, resume != nil)
		err := await(within, resume != nil)
		asked()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return endedBefore(p.Dir, ctx)
	}
	p.Shown = record.NewShown(p.Record, p.name, p.Header(), resume, func() string { return stallText(p.stall.Load()) })
	defer p.Shown.Close()
	run, err := live.New(p.runtimeOptions(ctx, resume))
	if err != nil {
		return err
	}
	p.Shown.Runs(run)
	p.runtime.Store(run)
	run.Restore()
	stopHearing, err := p.hearCells(run)
	if err != nil {
		return err
	}
	defer stopHearing()
	if resume != nil && resume.Ended && resume.Loop.Status().Finished == loop.ReasonSteps {
		p.logf("%s has made its %s; another run has another --name", p.Dir, report.Counted(p.Cfg.Trainer.Steps, "train step"))
		return errors.Join(p.standAtEnd(ctx, resume.Loop.Status().Version), p.mount(ctx))
	}
	if err := errors.Join(p.openPlayer(ctx, run.NowNS), p.mount(ctx)); err != nil {
		if ctx.Err() != nil {
			return endedBefore(p.Dir, ctx)
		}
		return err
	}
	p.setState(StateRunning)
	p.logf("%s: ready", p.Dir)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(watching, cancel) })
	watcher.Go(func() { p.watchServers(watching) })
	watcher.Go(func() { p.play(watching, cancel, run.NowNS) })
	_, err = run.Run(ctx)
	p.Well = err == nil
	for _, warning := range p.TakePaces().Warnings() {
		p.logf("%s", warning)
	}
	stopWatching()
	watcher.Wait()
	p.WaitEvaluations()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrFenced):
		return failure.Run("start it again to stand by", "another process took over the run: %w", err)
	case errors.Is(err, live.ErrPayloadsLost), errors.Is(err, live.ErrLogLost), errors.Is(err, jetstream.ErrLogDamaged): // the error says how to go on
		return failure.Run("", "%w", err)
	}
	return failure.Run("start headway serve again: it goes on from the last logged event", "%w", err)
}

// standAtEnd has a remote trainer be told of a finished run where it ended, though its loop does not run again.
func (p *Plane) standAtEnd(ctx context.Context, version loop.Version) error {
	if p.Remote == nil {
		return nil
	}
	p.Remote.EndRun() // first, so that nobody waits for a batch
	return p.Remote.Restore(ctx, version, 0)
}

// endedBefore is the failure of a run that was ended before it had begun.
func endedBefore(dir string, ctx context.Context) error {
	return failure.Run("start it again: nothing is lost", "%s ended before it had begun to run: %w", dir, context.Cause(ctx))
}

// Drain stops in order. It takes no new leases or claims and lets the running train step end; after server.drain_s it
// stops the rest at once.
func (p *Plane) Drain(cancel context.CancelCauseFunc) {
	run := p.runtime.Load()
	if run == nil || p.currentState() != StateRunning {
		cancel(errors.New("interrupted"))
		return
	}
	p.setState(StateDraining)
	p.server.Drain()
	limit := config.Seconds(p.Cfg.Server.DrainS)
	if run.View().Offered {
		p.logf("draining: the running train step may end within %s; again to stop at once", limit)
	} else {
		p.logf("draining: no train step runs; again to stop at once")
	}
	if p.Remote != nil {
		p.Remote.Drain()
	}
	if p.Workers != nil {
		p.Workers.Drain()
	}
	run.Stop()
	p.later(limit, func() { cancel(fmt.Errorf("the drain took longer than server.drain_s (%s)", limit)) })
}

// farewell keeps answering for a moment after the last step, so that whoever waits
// for work learns that there is none. One that was told to drain has refused them already: its run
// goes on when it is started again, and nobody is told that it has ended.
func (p *Plane) farewell(ctx context.Context, drained bool) {
	if drained {
		if p.Workers != nil {
			p.Workers.Close()
		}
		return
	}
	if p.Remote != nil {
		p.Remote.EndRun()
	}
	if p.Workers != nil {
		p.Workers.EndRun()
	}
	if ctx.Err() != nil || p.Remote == nil && p.Workers == nil {
		return
	}
	p.Farewell(ctx)
}

func (p *Plane) url() string { return p.URL(p.listener) }

// writeAddress tells other commands how the run's control plane is reached, or that the run has finished.
func (p *Plane) writeAddress() error {
	said := origin.Address{URL: p.url(), Run: p.name, PID: os.Getpid()}
	if p.finished() {
		version := p.Status().Version
		said.Finished = &version
	}
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	return replace.File(filepath.Join(p.Dir, origin.AddressFile), append(text, '\n'), 0o600)
}

// finished reports whether the run has made all its train steps.
func (p *Plane) finished() bool {
	run := p.runtime.Load()
	return run != nil && run.View().Status.Finished == loop.ReasonSteps
}

// over reports whether this process has ended the run. One that is drained or replaced stops, too.
func (p *Plane) over() bool { return p.currentState() == stateStopped && p.finished() }

func (p *Plane) setState(state string) {
	p.state.Store(&state)
	said := map[string]any{"kind": "state", "state": state}
	if p.over() {
		said["over"] = true
	}
	p.send(said)
}

func (p *Plane) writerNow() protocol.Writer {
	if w := p.writer.Load(); w != nil {
		return *w
	}
	return protocol.Writer{}
}

func (p *Plane) currentState() string { return *p.state.Load() }

// logf prints a line for the operator, with the time.
func (p *Plane) logf(format string, args ...any) { p.messages.Print(p.App, format, args...) }

// summary tells what the run came to: by print, or the operator where that is nil.
func (p *Plane) summary(err error, print func(protocol.Status) error) error {
	s := p.Status()
	if print != nil {
		return print(s)
	}
	if err != nil {
		return nil
	}
	how, next := s.State, "the same command goes on with it"
	if p.finished() {
		how, next = "finished", FinishedHint(p.Dir)
	}
	staleness := fmt.Sprintf("staleness %.2f", s.Staleness.Mean)
	switch {
	case s.Ledger.Trained > 0 && s.Throughput.Steps == 0:
		staleness = "no train step since the start"
	case s.Ledger.Trained > 0:
	case s.Trainer.State == "absent" && s.Trainer.Name == "":
		staleness = "no trainer came"
	default:
		staleness = "nothing was trained"
	}
	p.logf("%s: %s at version %d of %d; %s; ledger balanced: %t", p.Dir, how, s.Version, s.Steps, staleness, s.Ledger.Balanced)
	p.logf("%s", next)
	return nil
}

// FinishedHint is what there is to do with a run that a control plane has finished.
func FinishedHint(dir string) string {
	if _, err := os.Stat(trace.Path(dir)); err != nil {
		if _, err := os.Stat(filepath.Join(dir, parts.HostedDir)); err == nil {
			return filepath.Join(dir, parts.HostedDir) + " has where the service keeps its versions"
		}
		return "headway weights " + printable.Word(dir) + " lists its versions"
	}
	return fmt.Sprintf("headway view %s shows it in a browser; headway diagnose %s says what would make it faster or fresher", printable.Word(dir), printable.Word(dir))
}
