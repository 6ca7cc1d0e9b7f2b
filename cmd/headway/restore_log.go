package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/weights"
)

// restoreLogCmd writes the log of a control plane's run anew from its mirror.
type restoreLogCmd struct {
	command.Output
	Dir string `arg:"" name:"run" help:"Directory of a run of headway serve, which does not run."`
}

// restoredLog is what headway restore-log --json prints.
type restoredLog struct {
	Dir string `json:"dir"`
	// Version, Event and Line are where the run goes on.
	Version loop.Version `json:"version"`
	Event   int64        `json:"event"`
	Line    int64        `json:"line"`
	// LineBefore is how far the damaged log could be read; Damaged is where it lies now.
	LineBefore int64  `json:"line_before"`
	Damaged    string `json:"damaged"`
}

// restoreHint is for every refusal after which no mirror helps.
const restoreHint = "restore the run from a backup, or go on from its weights alone: docs/standby-and-backup.md"

// Run checks the mirror, and has the log written anew.
func (c *restoreLogCmd) Run(a *app.Process) error {
	options, err := c.options(a)
	if err != nil {
		return err
	}
	version, err := c.checkMirror()
	if err != nil {
		return err
	}
	restored, err := jetstream.RestoreLog(context.Background(), options)
	switch {
	case errors.Is(err, jetstream.ErrLogWhole):
		return failure.Run(origin.ServeHint(c.Dir), "%w", err)
	case err != nil:
		return failure.Run(restoreHint, "%w", err)
	}
	if c.JSON {
		return printJSON(a.Stdout, restoredLog{c.Dir, version, restored.End.Seq, restored.End.Line, restored.Had, restored.Aside})
	}
	_, err = fmt.Fprintf(a.Stdout, "the log of %s is written anew from %s: it ends with event %s (line %d, version %d); before it could be read to line %d\n"+
		"events after that one, if there were any, are lost: what they were about is done again\nthe damaged log is in %s\n%s\n",
		c.Dir, filepath.Base(trace.Path(c.Dir)), report.Count(restored.End.Seq), restored.End.Line, version, restored.Had, restored.Aside, origin.ServeHint(c.Dir))
	return err
}

// options are those of the run's store. It refuses a directory that has no log, or no mirror of one.
func (c *restoreLogCmd) options(a *app.Process) (o jetstream.Options, err error) {
	made, err := origin.Of(c.Dir)
	if err != nil {
		return o, err
	}
	if made != origin.Serve {
		return o, failure.Usage("name the directory of a run of headway serve, such as runs/NAME", "%s has no log with a mirror: it is not a control plane's run", c.Dir)
	}
	document, err := config.LoadRecorded(filepath.Join(c.Dir, parts.ConfigFile))
	if err != nil {
		return o, err
	}
	document = document.WithDefaults()
	if !document.Store.NATS.Inside() {
		return o, failure.Usage("restore its streams with the NATS command line: docs/standby-and-backup.md", "the log of %s is in a NATS cluster", c.Dir)
	}
	if document.Store.Trace != "full" {
		return o, failure.Usage(restoreHint, "the log of %s has no mirror (store.trace: %s)", c.Dir, document.Store.Trace)
	}
	whole, err := filepath.Abs(c.Dir)
	if err != nil {
		return o, failure.Usage("name the directory of a run", "%w", err)
	}
	n := document.Store.NATS
	return jetstream.Options{
		Dir: filepath.Join(c.Dir, origin.NatsDir), Run: filepath.Base(whole), Always: document.Store.Durability == "always",
		LogBytesMax: int64(n.LogBytesMax), PayloadBytesMax: int64(n.PayloadBytesMax), TracePath: trace.Path(c.Dir),
		Logf: func(format string, arguments ...any) { fmt.Fprintf(a.Stderr, format+"\n", arguments...) },
	}, nil
}

// checkMirror takes the mirror through the loop, and compares where it ends with the versions that are published.
func (c *restoreLogCmd) checkMirror() (loop.Version, error) {
	file, err := trace.Open(c.Dir)
	if err != nil {
		return 0, failure.Usage(restoreHint, "the log's mirror: %w", err)
	}
	defer file.Close()
	found, err := replay.Verify(file)
	if err != nil && !errors.Is(err, replay.ErrIncomplete) && !compare.Torn(err) {
		return 0, failure.Run(restoreHint, "the mirror %s is damaged itself, so that no log can be written from it: %w", file.Name(), err)
	}
	if found.Difference != nil {
		return 0, failure.Run("go on with the version of headway that wrote it", "the mirror %s was recorded by %s under other rules: %v", file.Name(), found.Header.Program, found.Difference)
	}
	published, err := weights.Open(filepath.Join(c.Dir, "weights"), weights.Options{ReadOnly: true})
	if err != nil {
		return 0, failure.Run("", "%w", err)
	}
	versions, err := published.Versions()
	if err != nil {
		return 0, failure.Run("", "%w", err)
	}
	// A version is published before its event is in the log: one may be ahead.
	if n := len(versions); n > 0 && versions[n-1] > found.Version+1 {
		return 0, failure.Run(restoreHint, "the mirror %s ends at version %d (event %d), and version %d is published: the events between them are lost", file.Name(), found.Version, found.Events, versions[n-1])
	}
	return found.Version, nil
}
