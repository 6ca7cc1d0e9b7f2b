package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/metrics"
)

// commandLog has what the program of sinks.command says, in the run directory.
const commandLog = "sinks-command.log"

// openSinks opens what the document names. What cannot be opened is an error before the run begins; what
// fails later is said, and no more.
func (r *Record) openSinks() error {
	var sinks []sink.Sink
	var errs []error
	add := func(s sink.Sink, err error) {
		if err != nil {
			errs = append(errs, failure.Usage("correct the section sinks, or leave it out", "%w", err))
			return
		}
		sinks = append(sinks, s)
	}
	name, to := filepath.Base(r.Dir), r.Cfg.Sinks
	if to.TensorBoard.Dir != "" {
		add(sink.TensorBoard(filepath.Join(to.TensorBoard.Dir, name), r.App.Now()))
	}
	if to.MLflow.URL != "" {
		token, err := parts.SecretOf("sinks.mlflow.token_file", to.MLflow.TokenFile)
		errs = append(errs, err)
		add(sink.MLflow(sink.MLflowOptions{URL: to.MLflow.URL, Experiment: to.MLflow.Experiment, Run: name, Token: token, Params: parameters(r.Cfg), Logf: r.Logf, Now: r.App.Now}))
	}
	if len(to.Command) > 0 {
		add(sink.Program(to.Command, filepath.Join(r.Dir, commandLog)))
	}
	if to.Spans.URL != "" {
		errs = append(errs, r.openSpans())
	}
	if len(sinks) > 0 {
		r.sinks = sink.Start(sinks, sink.Options{Logf: r.Logf})
	}
	return errors.Join(errs...)
}

// openSpans begins to send spans of a share of the rollouts.
func (r *Record) openSpans() error {
	if r.Around.Spans == nil {
		return failure.Usage("leave out sinks.spans", "sinks.spans: this program sends no spans")
	}
	to := r.Cfg.Sinks.Spans
	token, err := parts.SecretOf("sinks.spans.token_file", to.TokenFile)
	if err != nil {
		return err
	}
	model := cmp.Or(r.Cfg.Model.Path, r.Cfg.Environment.Task)
	r.Spans, err = r.Around.Spans(context.Background(), sink.SpansOptions{URL: to.URL, Token: token, Run: filepath.Base(r.Dir), Model: filepath.Base(model), Share: to.Share, Logf: r.Logf})
	return err
}

// watchSpans has a runtime's options tell the spans what happens.
func (r *Record) watchSpans(opt *live.Options) {
	if r.Spans == nil {
		return
	}
	r.Spans.Begin(r.App.Now().Add(-time.Duration(opt.Clock())))
	observe := opt.Observe
	opt.Observe = func(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
		r.Spans.Observe(ev, m.EnvironmentNS, actions)
		if observe != nil {
			observe(ev, m, actions)
		}
	}
}

// Traceparent is what tells an engine's server whose call it is, nil where no spans are sent.
func (r *Record) Traceparent() func(port.RolloutID) string {
	if r.Spans == nil {
		return nil
	}
	return func(id port.RolloutID) string { return r.Spans.Traceparent(id.Group, id.Sample, id.Attempt) }
}

// sinksPatience is how long the end of a run waits for what sinks have not taken.
const sinksPatience = 15 * time.Second

// closeSinks sends what still waits.
func (r *Record) closeSinks() {
	var both sync.WaitGroup
	both.Go(func() { r.sinks.Close(r.Well) })
	defer both.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), sinksPatience)
	defer cancel()
	if r.Spans == nil {
		return
	}
	if err := r.Spans.Close(ctx); err != nil {
		r.Logf("sinks.spans: %v", err) // the run is none the worse for it
	}
}

// Logf tells the operator: in the view while there is one.
func (r *Record) Logf(format string, args ...any) {
	if logf := r.operator.Load(); logf != nil {
		(*logf)(format, args...)
		return
	}
	fmt.Fprintf(r.App.Stderr, format+"\n", args...)
}

// LogTo has what is told go somewhere, nil for standard error.
func (r *Record) LogTo(logf func(format string, args ...any)) {
	if logf == nil {
		r.operator.Store(nil)
		return
	}
	r.operator.Store(&logf)
}

// parameters are a document's keys with their values, by dotted paths.
func parameters(cfg config.Config) map[string]string {
	text, err := json.Marshal(cfg.Shown())
	if err != nil {
		return nil
	}
	var tree any
	if json.Unmarshal(text, &tree) != nil {
		return nil
	}
	out := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		if object, is := value.(map[string]any); is {
			for key, inner := range object {
				walk(strings.TrimPrefix(path+"."+key, "."), inner)
			}
			return
		}
		if text, err := json.Marshal(value); err == nil && value != nil && value != "" {
			out[path] = strings.Trim(string(text), `"`)
		}
	}
	walk("", tree)
	return out
}
