package cell

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/chat"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/player"
	"github.com/headway-rl/headway/config"
	drive "github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/private"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/lock"
)

// Options say which cell of which run a process is.
type Options struct {
	// Cell is its name in the document, Run that of the run, Dir the run's directory.
	Cell, Run, Dir string
	// Program names the program and its version, for the control plane's log.
	Program string
	// Columns reads tasks that are stored by columns, nil for a program that has no such tasks.
	Columns taskset.Columns
	// Listener is where workers, agents and probes reach the cell, nil for a cell that opens no port. URL is its address, where
	// claims are to name one: behind an address that several cells answer for.
	Listener net.Listener
	URL      string
	// Version is the program's.
	Version string
}

// Cell is a process of a cell.
type Cell struct {
	*parts.Parts
	app  *app.Process
	opt  Options
	door *door // nil for a cell that opens no port
	// player plays the rollouts here, nil where workers do.
	player  *player.Player
	gateway *gateway.Gateway
	wire    *jetstream.Link
	kept    *payloads
	// own is the directory of this cell alone. follows: the cell has said hello.
	own      string
	used     parts.Processor
	follows  bool
	messages app.Messages
}

// endEvery is the time between two looks whether the run has ended.
const endEvery = time.Second

// lookWait is how long a start waits for the answers of all servers. One may hang, or stand paused by the cell's process before,
// and until the cell says hello the control plane waits a lease for it.
const lookWait = drive.Lease / 3

// storeWait is how long a cell that ends waits for NATS to take what was sampled.
const storeWait = 5 * time.Second

// New checks what can be checked without the run.
func New(a *app.Process, cfg config.Config, o Options) (*Cell, error) {
	names := cfg.Cells()
	if len(names) == 0 {
		return nil, failure.Usage("give an engine that this process is to play on engines.*.cell, in the control plane's document as well", "no engine of the document is of a cell")
	}
	if !slices.Contains(names, o.Cell) {
		return nil, failure.Usage("name one of them, or give an engine engines.*.cell", "the document has no cell %q; its cells are %s", o.Cell, strings.Join(names, ", "))
	}
	players, cfg, err := player.New(cfg, o.Columns)
	if err != nil {
		return nil, err
	}
	c := &Cell{app: a, opt: o, player: players, own: parts.CellDir(o.Dir, o.Cell)}
	if c.Parts, err = parts.New(cfg, o.Dir, parts.ServeRules(cfg), c.logf); err != nil {
		return nil, errors.Join(err, players.Close())
	}
	c.OnClose(players.Close)
	if err := c.openDoor(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Run is the cell until the run has made its train steps, or the context ends.
func (c *Cell) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	shut := c.door.serve(ctx, end)
	err := c.ended(ctx, c.run(ctx))
	return errors.Join(err, shut())
}

// ended tells the operator how the cell has ended, and returns what is an error of it.
func (c *Cell) ended(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, link.ErrEnded):
		c.logf("cell %s ends: %v", c.opt.Cell, err)
		c.door.farewell(ctx)
		return nil
	case err != nil && ctx.Err() != nil:
		after := ""
		if c.follows {
			after = ". Its engines join again when it is started again, and its rollouts under way fail"
			if c.Rules.ResumeRestart {
				after = fmt.Sprintf(". Started again within %v, it goes on with its rollouts", drive.Lease)
			}
		}
		c.logf("cell %s ends: %v%s", c.opt.Cell, context.Cause(ctx), after)
		return nil
	}
	return err
}

func (c *Cell) run(ctx context.Context) error {
	if _, ended := origin.FinishedAt(c.Dir); ended { // nobody would answer
		return link.ErrEnded
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if c.Cfg.Store.NATS.Inside() {
		go c.watchEnd(ctx, end)
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	if err := c.assemble(ctx); err != nil {
		return err
	}
	if err := c.askServers(ctx); err != nil {
		return err
	}
	began := time.Now()
	clock := func() int64 { return time.Since(began).Nanoseconds() }
	o := c.follower(clock)
	o.Joined = func() { // its rollouts are those of the process before
		if err := c.door.open(); err != nil {
			end(err)
		}
	}
	sharing, endShare := context.WithCancel(ctx)
	defer endShare()
	share, err := c.share(sharing, &o)
	if err != nil {
		return err
	}
	l, err := link.New(ctx, c.wire, o, c.opt.Program)
	if err != nil {
		return c.failed(err)
	}
	c.kept.retain()
	l.Plays(share)
	playing, stop := context.WithCancel(ctx)
	var players sync.WaitGroup
	var played error
	players.Go(func() {
		if c.player == nil {
			c.watchWorkers(playing)
		} else if played = c.player.Run(playing, c.Workers, c.gateway, clock); played != nil {
			stop()
		}
	})
	c.follows = true
	// What waits for NATS would keep a cell that is to end from ending.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(storeWait, c.wire.End) })()
	err = l.Run()
	if errors.Is(err, link.ErrEnded) {
		c.Workers.EndRun()
	} else {
		c.Workers.Close() // the run goes on without this process
	}
	stop()
	players.Wait()
	endShare()
	share.Wait()
	return errors.Join(c.failed(err), played)
}

// watchEnd ends a cell whose NATS server ends with the control plane, once the run's directory says that the run has ended: the
// cell may have been cut off by then.
func (c *Cell) watchEnd(ctx context.Context, end context.CancelCauseFunc) {
	every := time.NewTicker(endEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if _, ended := origin.FinishedAt(c.Dir); ended {
			end(link.ErrEnded)
		}
	}
}

// failed is the error of a cell that its run does not let go on.
func (c *Cell) failed(err error) error {
	if refusal, refused := errors.AsType[*drive.Refusal](err); refused {
		return failure.Run("", "the control plane refuses cell %s: %w", c.opt.Cell, refusal)
	}
	if _, told := errors.AsType[*failure.Error](err); told || err == nil || errors.Is(err, link.ErrEnded) {
		return err
	}
	return failure.Run("start it again: its engines join anew", "%w", err)
}

// connect reaches the run, waits until it has begun, and goes on with its document.
func (c *Cell) connect(ctx context.Context) (err error) {
	o := parts.CellStore(c.Cfg, c.Dir, c.opt.Cell)
	o.Logf = c.logf
	waits := time.AfterFunc(time.Second, func() {
		if _, err := os.Stat(o.CellFile); o.CellFile != "" && err != nil {
			c.logf("cell %s waits for %s, which the control plane writes when it starts: its --name and --dir are the same, on a disk that both reach", c.opt.Cell, o.CellFile)
			return
		}
		c.logf("cell %s waits for the run %s to begin at %s: headway serve with this document and --name %s begins it", c.opt.Cell, c.opt.Run, c.Cfg.Public().Store.NATS.URL, c.opt.Run)
	})
	defer waits.Stop()
	if c.wire, err = jetstream.OpenLink(ctx, o, c.opt.Cell); err != nil {
		return failure.Run(entryHint(o.CellFile, err), "cell %s: %w", c.opt.Cell, err)
	}
	c.OnClose(c.wire.Close)
	header, _, err := c.wire.Begin(ctx)
	if err != nil {
		return failure.Run("", "cell %s: the log of the run %s: %w", c.opt.Cell, c.opt.Run, err)
	}
	merged, rules, err := origin.Adopt(c.opt.Run, c.Dir, "give the cell the document of the control plane", header, c.Cfg)
	if err == nil {
		c.Adopt(merged, rules)
	}
	return err
}

// entryHint says what to do about a NATS server that does not let the cell in, which has a file for it if it is the control
// plane's own.
func entryHint(file string, err error) string {
	_, stranger := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case file == "":
		return ""
	case stranger:
		return fmt.Sprintf("%s is not of the server there: it is of another run, or from before new secrets; give --name and --dir of the control plane", file)
	case errors.Is(err, jetstream.ErrRefused):
		return fmt.Sprintf("%s is of another cell, or from before new secrets: use the one that the control plane has written for this cell", file)
	case errors.Is(err, fs.ErrPermission):
		return "run the cell as the user who owns " + file
	case errors.Is(err, fs.ErrNotExist):
		return "start the control plane with the same document: it writes " + file
	}
	return "see whether the control plane runs and answers, and start the cell again"
}

// assemble makes the cell's parts, in a directory that no other process of the cell has.
func (c *Cell) assemble(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(c.Dir, "weights")); err != nil {
		return failure.Usage("give both the same --dir, on a disk that both reach: engines of a cell load the versions that lie there",
			"the run %s has begun, and its versions are not in this directory: %w", c.opt.Run, err)
	}
	if err := c.checkWeights(); err != nil {
		return err
	}
	if err := private.Make(c.own); err != nil {
		return failure.Run("", "cell %s: %w", c.opt.Cell, err)
	}
	held, err := lock.Take(filepath.Join(c.own, "lock"), c.own)
	if errors.Is(err, fs.ErrPermission) {
		return failure.Run("run the cell as the user who owns "+c.own, "cell %s: %w", c.opt.Cell, err)
	}
	if err != nil {
		return failure.Run(fmt.Sprintf("end it first, or give this process the name of another cell: one process at a time is cell %s", c.opt.Cell), "%w", err)
	}
	c.OnClose(func() error { held.Release(); return nil })
	// Claims run out by the silence of workers alone, and not while this process stands still.
	present := parts.Presence(ctx, c.app.Clock(0), func() bool { return true })
	host := parts.Host{Cell: c.opt.Cell, Name: c.opt.Run, Clock: present, Replaced: c.wire.Replaced, Rarely: c.logf}
	if c.kept, err = c.newPayloads(); err != nil {
		return err
	}
	if c.Rules.ResumeRestart {
		host.Turns = c.kept
	}
	if err := c.Build(host); err != nil {
		return err
	}
	if c.gateway, err = chat.NewGateway(c.Parts, func() {}, c.logf); err != nil || c.player == nil {
		return err
	}
	return c.player.Open(ctx, c.Cfg, c.own, c.Dir, c.app.Now, c.logf, nil)
}

// checkWeights refuses a directory of versions in which this process may not write, where its engines read from it: each
// version gets a directory in the form that engines read, by the first process that needs it.
func (c *Cell) checkWeights() error {
	dir := filepath.Join(c.Dir, "weights")
	reads := slices.ContainsFunc(c.Cfg.Engines, func(e config.Engine) bool {
		return e.Cell == c.opt.Cell && slices.Contains([]string{"disk", "lora", "restart"}, e.Weights)
	})
	if !reads {
		return nil
	}
	made, err := os.MkdirTemp(dir, ".temporary-")
	if err == nil {
		return os.Remove(made)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return failure.Run("run the cell as the control plane's user, or let it write there", "cell %s: its engines read versions from %s, and it makes what they read there: %w", c.opt.Cell, dir, err)
	}
	return nil // the first load says what is wrong
}

// askServers asks the servers of this cell what they can, and ends the start where nothing could be trained on without it. One
// that does not answer joins when it does.
func (c *Cell) askServers(ctx context.Context) error {
	var failures []error
	asked := c.Asked()
	if c.Cfg.Elastic() { // the control plane's fleet asks each when it was started
		asked = nil
	}
	within, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	var down, unfit, warnings []string
	var scorers sync.WaitGroup
	if c.Scorer != nil {
		scorers.Go(func() { down, unfit, warnings = c.ScorersText(c.ProbeScorers(within)) })
	}
	for _, a := range c.Ask(within, asked) {
		switch {
		case errors.Is(a.Err, upstream.ErrKind):
			failures = append(failures, parts.WrongKind(a.Err))
		case a.Err != nil:
			c.logf("engine %s has not said what it can, and joins when it does: %v", c.Cfg.Engines[a.Engine].Name, a.Err)
		default:
			failures = append(failures, c.Judge(a.Engine, a.Caps))
		}
	}
	scorers.Wait()
	if len(down)+len(unfit) > 0 { // the control plane has begun with them
		c.logf("rollouts fail until they are scored: %s", strings.Join(append(down, unfit...), "; "))
	}
	for _, text := range warnings {
		c.logf("%s", text)
	}
	return errors.Join(failures...)
}

// follower describes the cell that follows the log.
func (c *Cell) follower(clock func() int64) drive.Options {
	o := drive.Options{Name: c.opt.Cell, Engines: slices.Clone(c.Engines), Rules: c.Rules, Environment: c.Environment, Payloads: c.kept, Clock: clock, Load: c.load, Logf: c.logf}
	if c.Scorer != nil {
		o.Scorer = c.Scorer
	}
	own := 0
	for i := range o.Engines {
		if c.Owns(i) {
			own++
		} else {
			o.Engines[i] = nil
		}
	}
	o.Space = &drive.Space{Clock: clock, Timer: drive.NewTimer, Changed: func(cause error) {
		if cause != nil {
			c.logf("no room for payloads: %v. Rollouts wait, and nothing is lost; raise store.nats.payload_bytes_max", cause)
		} else {
			c.logf("there is room again: going on")
		}
	}}
	c.logf("cell %s of the run %s has %s", c.opt.Cell, c.opt.Run, report.Counted(own, "engine"))
	return o
}

// share is the cell's part in evaluations, nil in a run without slots for them. The cell is to have its engines.
func (c *Cell) share(ctx context.Context, o *drive.Options) (*drive.Share, error) {
	if c.Cfg.Evaluate.Slots == 0 {
		return nil, nil
	}
	s, err := drive.NewShare(ctx, drive.ShareOptions{Engines: o.Engines, Slots: c.EvaluationSlots(), Environment: c.Environment, Levels: c.Rules.Levels})
	if err == nil {
		o.Engines = s.Engines()
	}
	return s, err
}

// load is what this process has taken of its bounds, for the control plane's status.
func (c *Cell) load() json.RawMessage {
	bounds := c.bounds()
	if c.door != nil {
		bounds = append(bounds, c.door.server.Bounds()...)
	}
	text, err := json.Marshal(bounds)
	if err != nil { // these are plain values
		return nil
	}
	return text
}

// bounds are those of the cell's rollouts and processors.
func (c *Cell) bounds() []protocol.Bound {
	return append(c.Workers.Bounds(), c.used.Bound(c.app.Now(), c.app.Processor)...)
}

// logf prints a line for the operator, with the time.
func (c *Cell) logf(format string, args ...any) { c.messages.Print(c.app, format, args...) }
