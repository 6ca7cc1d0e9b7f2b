package run

import (
	"context"
	"errors"
	"fmt"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/forecast"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/weights"
	"os"
	"path/filepath"
)

// Resumed is an interrupted run, rebuilt from its directory.
type Resumed struct {
	Cfg   config.Config
	Store *file.Store
	State *live.Resume
	// expected is the prediction made before the run's first step.
	expected forecast.Forecast
}

// Load opens a run directory to go on with it; it changes nothing that it cannot go on with.
func Load(a *app.Process, dir string) (*Resumed, error) {
	info, err := os.Stat(trace.Path(dir))
	if err != nil {
		return nil, failure.Usage("name a run directory that headway run made", "%s is no run directory: it has no %s", dir, trace.FileName)
	}
	if info.Size() == 0 {
		return nil, failure.Usage("delete the directory and start the run anew", "%s holds no run: it ended before its first step", dir)
	}
	var messages app.Messages
	store, err := file.Open(dir, file.Options{Logf: func(format string, args ...any) { messages.Print(a, format, args...) }})
	if err != nil {
		return nil, err
	}
	header, _ := store.Header()
	cfg, err := config.ParseRecorded("config of the trace of "+dir, []byte(header.Config))
	if err == nil {
		cfg, err = cfg.WithDefaults(), cfg.WithDefaults().Validate()
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	store.SetAlways(cfg.Store.Durability == "always")
	state, err := live.Recover(store, a.Clock(0))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), store.Close())
	}
	if err := checkVersion(dir, state.Loop.Version()); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	expected, err := forecast.Read(dir)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Resumed{Cfg: cfg, Store: store, State: state, expected: expected}, nil
}

// checkVersion verifies the weights that a run goes on from, before anything of it is changed.
func checkVersion(dir string, v loop.Version) error {
	published, err := weights.Open(filepath.Join(dir, "weights"), weights.Options{ReadOnly: true})
	if err == nil {
		err = published.Verify(context.Background(), v)
	}
	if v == 0 && errors.Is(err, weights.ErrNotFound) {
		return nil // it ended before its initial weights were made; they are made again
	}
	if err != nil {
		return failure.Run("restore that version's directory from a copy; the trace has counted its steps, so an older version cannot take its place",
			"%s cannot go on without the weights of version %d: %w", dir, v, err)
	}
	return nil
}

// Finished reports whether nothing but the report is left to do.
func (r *Resumed) Finished() bool {
	return r.State.Ended && r.State.Loop.Version() >= loop.Version(r.Cfg.Trainer.Steps)
}

// Result is what the live runtime would have said at the end of a finished run.
func (r *Resumed) Result() live.Result {
	result := live.Result{Reason: loop.ReasonSteps, Status: r.State.Loop.Status(), Summary: r.State.Recorder.Summary(), Series: r.State.Recorder.Steps}
	if r.State.Attribution != nil {
		result.Attribution = r.State.Attribution.Summary()
	}
	return result
}
