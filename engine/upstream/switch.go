package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Limits of switches.
const (
	// resumeLimit bounds one try to resume, resumeTries those that a switch waits for; after them a
	// goroutine goes on trying with pauses of resumePause. A server that cannot be reached after
	// awayTries, which is 1.75 s where nobody listens, is lost; one that was started again meanwhile is not.
	resumeLimit = 30 * time.Second
	resumeTries = 5
	awayTries   = 4
	resumePause = 5 * time.Second
	// closeLimit bounds how long Close waits for a switch, lastResumeLimit its own try to resume.
	closeLimit      = resumeLimit + 10*time.Second
	lastResumeLimit = 10 * time.Second
	// quietRounds is how many times Options.Quiet a paused server may go on bringing tokens.
	// quietParts is in how many parts it is waited for that they stop.
	quietRounds = 20
	quietParts  = 5
)

// Load implements [port.Engine]: it makes the version's directory and checks it, so that a switch
// has only to be asked for. Before the first one and after a loss it asks the server for its
// features. If a switch is to start the server, it asks later: then nothing need run yet.
func (e *Engine) Load(ctx context.Context, version loop.Version) error {
	if err := e.turn(ctx); err != nil {
		return err
	}
	defer e.turnOver()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	e.loaded = loaded{version: loop.NoVersion}
	var caps *Capabilities
	if e.opt.Delivery != DeliveryRestart {
		var err error
		if caps, err = e.ready(ctx); err != nil {
			return e.gone(err)
		}
		if err := e.suffices(caps); err != nil {
			e.mu.Lock()
			e.caps = nil // the next Load asks again: it may be another server, or have said less than it can
			e.mu.Unlock()
			return err
		}
	}
	if e.opt.Delivery == DeliveryNone {
		if version != 0 {
			return e.fail("it cannot serve version %d: its weights are none, so it goes on with version 0", version)
		}
		e.loaded = loaded{version: version}
		return nil
	}
	if err := e.fetch(ctx, version, caps); err != nil {
		return e.gone(e.fail("loading version %d: %w", version, err))
	}
	return nil
}

// fetch makes a version ready for a switch.
func (e *Engine) fetch(ctx context.Context, version loop.Version, caps *Capabilities) error {
	if e.opt.Delivery == DeliveryDistributed {
		return e.prepare(ctx, version, caps)
	}
	dir, err := e.view(ctx, version)
	if err != nil {
		return err
	}
	e.loaded = loaded{version: version, dir: dir}
	return nil
}

// view makes the directory of a version, and refuses one that a server could not load whole.
func (e *Engine) view(ctx context.Context, version loop.Version) (string, error) {
	dir, err := e.opt.Views(ctx, version)
	if err != nil {
		return "", err
	}
	if e.opt.Delivery == DeliveryRestart && !isView(dir) { // the program that starts the server knows what it is
		_, err := os.Stat(dir)
		return dir, err
	}
	shapes, err := checkView(dir, e.opt.Delivery == DeliveryLora)
	if err != nil {
		return "", err
	}
	if e.shapes == nil {
		e.shapes = shapes
	}
	return dir, sameShapes(e.shapes, shapes)
}

// gone adds that a server which does not answer, or not yet, is down.
func (e *Engine) gone(err error) error {
	_, transport := errors.AsType[*url.Error](err)
	if (transport || StatusOf(err) >= 500) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", port.ErrEngineDown, err)
	}
	return err
}

// turn waits until no other Load or Switch is under way; turnOver lets the next one.
func (e *Engine) turn(ctx context.Context) error {
	select {
	case e.switching <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.life.Err() != nil {
		e.turnOver()
		return e.fail("%w", ErrClosed)
	}
	return nil
}

func (e *Engine) turnOver() { <-e.switching }

// limited bounds what belongs to an update of weights by Options.Update, and has Status say until when.
// The error that ends it says why in those words, with the limit.
func (e *Engine) limited(ctx context.Context, why string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.opt.Update, fmt.Errorf("%s %v", why, e.opt.Update))
	deadline, _ := ctx.Deadline()
	before := e.until.Swap(&deadline)
	return ctx, func() {
		cancel()
		e.until.Store(before)
	}
}

// suffices refuses a server without which nothing can be trained.
func (e *Engine) suffices(caps *Capabilities) error {
	lacks := caps.Lacks(e.opt.Delivery)
	for _, m := range lacks {
		if m.Fatal && m.Delivery == "" {
			return e.lacking(m)
		}
	}
	if unsaid := caps.unsaid(e.opt.Server.Channels); len(unsaid) > 0 {
		return e.lacking(unsaid...)
	}
	if !caps.TokenIDs || !caps.Logprobs {
		return e.lacking(Missing{What: "it does not return the ids and log-probs of the tokens that it samples, so nothing can be trained on them"})
	}
	if caps.Vocabulary > 0 && e.opt.Vocabulary > 0 && caps.Vocabulary != e.opt.Vocabulary {
		return e.fail("%s serves a model with %d token ids, the run's has %d: it is another model", e.opt.Server.URL(), caps.Vocabulary, e.opt.Vocabulary)
	}
	if !caps.ProcessedLogprobs && !e.opt.Sampling.Policy() {
		e.opt.Logf("engine %s: the log-probs of %s are the model's own, as far as is known, and tokens are drawn otherwise (temperature %g, top_p %g, top_k %d, min_p %g): ratios to them are off",
			e.opt.Name, e.opt.Server.URL(), e.opt.Sampling.Temperature, e.opt.Sampling.TopP, e.opt.Sampling.TopK, e.opt.Sampling.MinP)
	}
	if !caps.Takes(e.opt.Delivery) {
		return e.lacking(lacks...) // one that it lacks on every delivery may be why
	}
	return nil
}

// lacking is the error of a server that lacks something, in the words of its status.
func (e *Engine) lacking(all ...Missing) error {
	words := make([]string, len(all))
	for i, m := range all {
		words[i] = m.String()
	}
	return e.fail("%w: %s: %s", ErrLacking, e.opt.Server.URL(), strings.Join(words, "; "))
}

// Switch implements [port.Engine]. With and without hold, nothing is sampled while the weights
// change. Where the server can pause, responses stand still and go on with their cache, else they
// are cut off and go on as a prefix. See the package's documentation for what is exact. After an
// error the weights are unknown, unless nothing but a pause had been asked of the server yet. The server is
// resumed, and calls wait for the next Switch.
func (e *Engine) Switch(ctx context.Context, version loop.Version, _ bool) error {
	if err := e.turn(ctx); err != nil {
		return err
	}
	defer e.turnOver()
	if e.loaded.version != version || version < 0 {
		return e.fail("cannot switch to version %d, the loaded one is %d", version, e.loaded.version)
	}
	ctx, cancel := e.limited(ctx, "it took longer than")
	defer cancel()
	stop := context.AfterFunc(e.life, cancel)
	defer stop()
	var caps *Capabilities
	if e.opt.Delivery != DeliveryRestart {
		var err error
		if caps, err = e.ready(ctx); err != nil {
			return e.gone(err)
		}
	}
	if e.opt.Delivery == DeliveryDistributed && !e.together() { // nothing has paused yet
		if err := e.prepare(ctx, version, caps); err != nil {
			return e.gone(e.fail("loading version %d again: %w", version, err))
		}
	}
	e.hold()
	defer e.unhold()
	err := e.change(ctx, version, caps)
	if err == nil {
		if err = e.conclude(); err != nil {
			e.forget(err)
		}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return e.fail("switching to version %d: %w", version, err)
	}
	return nil
}

// replaced says why another process may be in the place of this one by now, nil where none is. It asks for as long as the switch
// may take: nothing has changed yet.
func (e *Engine) replaced(ctx context.Context) error {
	if e.opt.Replaced == nil {
		return nil
	}
	return e.opt.Replaced(ctx)
}

// askPatience is how long responses stand still, at most, for the answer that no other process is in the place of this one.
const askPatience = 5 * time.Second

// stillReplaced is replaced once more, where the process may have stood still since.
func (e *Engine) stillReplaced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return e.replaced(ctx)
}

// change makes the server serve the loaded version. caps is nil where it is started for it.
func (e *Engine) change(ctx context.Context, version loop.Version, caps *Capabilities) error {
	u := Update{Version: version, Label: e.label(version), Cache: e.opt.Cache, Lora: e.opt.Delivery == DeliveryLora}
	if e.loaded.dir != "" {
		u.Dir = e.opt.ServerPath(e.loaded.dir)
	}
	switch e.opt.Delivery {
	case DeliveryNone:
		return e.adopt(ctx, caps)
	case DeliveryRestart:
		e.stood = e.score.scores
		return e.restart(ctx, u)
	}
	u.Cache = e.cache(caps)
	if err := e.lookBefore(ctx, caps); err != nil {
		return err
	}
	if caps.Pause && !u.Lora {
		return e.changePaused(ctx, u, caps)
	}
	return e.changeCut(ctx, u, caps)
}

// owe notes that the server is paused, or may be.
func (e *Engine) owe(caps *Capabilities) {
	e.owing = caps
	e.owed.Store(true)
}

// adopt makes what the server serves version 0. One that a process before this has left paused goes on.
func (e *Engine) adopt(ctx context.Context, caps *Capabilities) error {
	if caps.Pause {
		e.owe(caps)
		if err := e.resume(ctx, caps); err != nil && !errors.Is(err, errRestarted) {
			return err
		}
	}
	label, err := e.opt.Dialect.Version(ctx, e.opt.Server, caps)
	if err != nil {
		return fmt.Errorf("asking what it serves: %w", err)
	}
	e.serve(0, label, caps)
	return nil
}

// changePaused switches a server that can pause. Its streams flow again only after the new weights
// were verified: until then their readers stand at the gate. They stand there before the server is asked
// whether the pause has held: what it samples behind its answer is of the new version.
func (e *Engine) changePaused(ctx context.Context, u Update, caps *Capabilities) error {
	if err := e.replaced(ctx); err != nil {
		return err
	}
	e.owe(caps)
	if err := e.opt.Dialect.Pause(ctx, e.opt.Server, u, caps); err != nil {
		if err = errors.Join(fmt.Errorf("pausing: %w", err), e.resume(ctx, caps)); refused(err) {
			e.forget(err)
		}
		return err
	}
	p := &pause{since: e.now(), over: make(chan struct{})}
	e.pause.Store(p)
	if err := e.stillReplaced(ctx); err != nil { // the server's weights are as before
		e.pause.Store(nil)
		close(p.over)
		return errors.Join(err, e.resume(ctx, caps))
	}
	label, err := e.install(ctx, u, caps)
	if err == nil {
		err = e.quiet(ctx, p.since, caps)
	}
	g := &gate{open: make(chan struct{})}
	e.gate.Store(g)
	defer func() {
		e.gate.Store(nil)
		close(g.open)
	}()
	if err == nil {
		err = e.stillPaused(ctx, caps)
	}
	if err != nil {
		g.failed = true
		e.forget(err) // before anybody who waits for the end of the pause goes on
	}
	p.sham = errors.Is(err, haltSpoilt)
	e.pause.Store(nil)
	close(p.over)
	if err != nil {
		_ = e.cut(context.WithoutCancel(ctx), haltUnknown)
		return errors.Join(err, e.resume(ctx, caps))
	}
	e.serve(u.Version, label, caps)
	if err = e.resume(ctx, caps); err == nil {
		err = e.verify(ctx, caps)
	}
	if err != nil {
		g.failed = true
		e.forget(err)
	}
	return err
}

// stillPaused makes sure that the pause has held, where the server says so. One that was started again is not paused, and
// another process of a cell may have resumed it.
func (e *Engine) stillPaused(ctx context.Context, caps *Capabilities) error {
	pauser, ok := e.opt.Dialect.(Pauser)
	if !ok {
		return nil
	}
	paused, known, err := pauser.Paused(ctx, e.opt.Server, caps)
	if err != nil {
		return fmt.Errorf("asking whether it is paused: %w", err)
	}
	if known && !paused {
		return fmt.Errorf("it is paused no longer: it was started again, or somebody else has resumed it: %w", haltSpoilt)
	}
	return nil
}

// cutInPlace ends all responses, where no other process is in the place of this one before and after.
func (e *Engine) cutInPlace(ctx context.Context) error {
	if err := e.replaced(ctx); err != nil {
		return err
	}
	if err := e.cut(ctx, haltCut); err != nil {
		return err
	}
	return e.stillReplaced(ctx)
}

// changeCut switches a server that cannot pause, or takes an adapter: no response is under way meanwhile. A
// request keeps the adapter that it began with, so that a pause would let it go on with the old one.
func (e *Engine) changeCut(ctx context.Context, u Update, caps *Capabilities) error {
	if err := e.cutInPlace(ctx); err != nil {
		return err
	}
	label, err := e.install(ctx, u, caps)
	if err == nil {
		err = e.verify(ctx, caps)
	}
	if err != nil {
		e.forget(err)
		return err
	}
	e.serve(u.Version, label, caps)
	return nil
}

// restart switches a server that takes new weights only when it starts.
func (e *Engine) restart(ctx context.Context, u Update) error {
	if err := e.cutInPlace(ctx); err != nil {
		return err
	}
	restarter := e.opt.Dialect.(Restarter) // Validate has seen to it
	if err := restarter.Restart(ctx, e.opt.Server, u); err != nil {
		e.forget(err)
		return err
	}
	caps, err := e.Probe(ctx)
	if err == nil {
		err = e.suffices(&caps)
	}
	label := ""
	if err == nil {
		label, err = e.labelOf(ctx, u, &caps)
	}
	if err == nil {
		err = e.verify(ctx, &caps)
	}
	if err != nil {
		e.forget(err)
		return err
	}
	e.serve(u.Version, label, &caps)
	return nil
}

// install updates the weights and returns the label by which the server calls them, empty where it
// has none.
func (e *Engine) install(ctx context.Context, u Update, caps *Capabilities) (string, error) {
	e.mu.Lock()
	e.labels[u.Label] = u.Version // the server may say it before the switch is over
	e.mu.Unlock()
	e.tried = e.tried.next(e.loaded.content(), e.counts.losses.Load())
	var err error
	if e.opt.Delivery == DeliveryDistributed {
		err = e.receive(ctx, u, caps)
	} else {
		err = e.opt.Dialect.Update(ctx, e.opt.Server, u, caps)
	}
	if err != nil {
		return "", fmt.Errorf("updating: %w", err)
	}
	return e.labelOf(ctx, u, caps)
}

// labelOf asks the server what it serves, and refuses anything but the update.
func (e *Engine) labelOf(ctx context.Context, u Update, caps *Capabilities) (string, error) {
	label, err := e.opt.Dialect.Version(ctx, e.opt.Server, caps)
	if err != nil {
		return "", fmt.Errorf("asking what it serves: %w", err)
	}
	if label != "" && label != u.Label {
		return "", fmt.Errorf("after the update to %q it says that it serves %.200q", u.Label, label)
	}
	e.confirmed = label
	return label, nil
}

// quiet waits until no token has arrived for Options.Quiet since the pause: what had been sampled
// before it counts as received then. Where the server names the versions itself, the time of the
// update counts. Elsewhere it waits after the update. Both in parts, each behind an answer of the
// server: one that takes longer than it should means that this process did not run, or the server did
// not, and what is on its way may lie unread. FirstToken goes by the barrier everywhere.
func (e *Engine) quiet(ctx context.Context, since int64, caps *Capabilities) error {
	limit := e.now() + quietRounds*int64(e.opt.Quiet)
	start := since
	if !caps.VersionSpans {
		start = e.now()
	}
	part, said := e.opt.Quiet/quietParts, false
	for {
		began, arrived := e.now(), e.arrivedAt.Load()
		if began-max(arrived, start) >= int64(e.opt.Quiet) {
			return nil
		}
		if began > limit && began-arrived < int64(e.opt.Quiet) {
			return fmt.Errorf("%w: for %v: %w", ErrLied, time.Duration(began-since), haltSpoilt)
		}
		if _, err := e.opt.Dialect.Version(ctx, e.opt.Server, caps); err != nil {
			return fmt.Errorf("asking what it serves: %w", err)
		}
		answered := e.now()
		timer := time.NewTimer(part)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		late := e.now()-answered > 2*int64(part) || answered-began > int64(part)
		switch {
		case !late:
		case e.now() < limit:
			start = e.now()
		case !said:
			said = true
			e.opt.Logf("engine %s: it, or this process, has not kept up for %v in a switch: of some tokens the version that is derived may be the next one",
				e.opt.Name, time.Duration(e.now()-since))
		}
	}
}
