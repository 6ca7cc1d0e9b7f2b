package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/pages"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/experiment"
)

// viewCmd shows a recorded run in a browser.
type viewCmd struct {
	command.Output
	Path   string   `arg:"" name:"run" help:"A run directory or a trace file, of a run that has ended or still goes on; or a document (FILE.yaml), which is simulated."`
	Listen string   `placeholder:"ADDRESS" help:"Address and port of the pages, on this machine (default: 127.0.0.1:7070, or the next free port)."`
	NoOpen bool     `help:"Print the link alone. A browser opens at a terminal with a display, never over ssh; BROWSER chooses which, or none."`
	Set    []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of a document by its dotted path. Repeatable."`
}

// Help explains what is shown; the command line prints it after the flags.
func (c *viewCmd) Help() string {
	return `The pages are served until Ctrl-C. Of a long run, the part read so far is shown at once. A run
that still goes on is followed. A document is simulated first. Nothing is asked of another machine, and
nothing of the run is changed.

  headway view runs/NAME                a run directory
  headway view out.ndjson.zst           the trace of a simulation (headway simulate --trace)
  headway view plan.yaml                a document, simulated`
}

// Run serves the pages until it is interrupted.
func (c *viewCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	return c.serve(ctx, a)
}

// serve serves until the context ends.
func (c *viewCmd) serve(ctx context.Context, a *app.Process) error {
	path := c.Path
	switch {
	case isDocument(path):
		trace, remove, err := c.simulated(a)
		if err != nil {
			return err
		}
		defer remove()
		path = trace
	case len(c.Set) > 0:
		return failure.Usage("headway resimulate shows what a run would have been under other settings", "--set changes a document, and %s is none", path)
	}
	shown, err := compare.Open(path, a.Now)
	if err != nil {
		return err
	}
	defer shown.Close()
	listener, err := listenToView(c.Listen)
	if err != nil {
		return err
	}
	token := pages.Token(c.Path)
	url := pages.Link(listener, token)
	if c.JSON {
		err = printJSON(a.Stdout, map[string]string{"run": c.Path, "url": url})
	} else {
		_, err = fmt.Fprintf(a.Stdout, "%s is shown at %s (Ctrl-C ends it)\n", c.Path, url)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer c.open(a, url)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		shown.Follow(ctx)
	}()
	err = pages.Serve(ctx, listener, shown.Model().Handler(), token)
	cancel()
	<-read
	return err
}

// open opens a browser where a person sits at the terminal, and returns the function that clears up. The link is printed
// in any case, so that a browser that does not start is no failure.
func (c *viewCmd) open(a *app.Process, link string) (remove func()) {
	remove = func() {}
	if c.NoOpen || c.JSON || !a.IsTerminal(a.Stdout) {
		return remove
	}
	command := pages.Browser(a.Getenv, runtime.GOOS)
	if command == nil {
		return remove
	}
	cleared, err := pages.Open(command, link)
	if err != nil {
		fmt.Fprintf(a.Stderr, "no browser opens: %v\n", err)
		return remove
	}
	return cleared
}

// listenToView opens the port of the pages: the one that is named or, where none is, the first free one.
func listenToView(address string) (net.Listener, error) {
	if address == "" {
		return pages.FirstFree(pages.DefaultListen)
	}
	if err := pages.CheckListen(address); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, failure.Usage("choose another port, or leave --listen out: the next free one is taken", "--listen %s: %w", address, err)
	}
	return listener, nil
}

// isDocument reports whether a path names a document, which is simulated to be shown.
func isDocument(path string) bool {
	suffix := strings.ToLower(filepath.Ext(path))
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return false
	}
	return suffix == ".yaml" || suffix == ".yml"
}

// simulated simulates a document once, and returns its trace, in a directory of its own that remove takes away.
func (c *viewCmd) simulated(a *app.Process) (path string, remove func(), err error) {
	simulate := simulateCmd{File: c.Path, Set: c.Set, Seeds: 1}
	one, err := simulate.first()
	if err != nil {
		return "", nil, err
	}
	warn(a, one.Document.Warnings())
	if takes := experiment.Costly(one.Document); takes != "" {
		return "", nil, failure.Usage("headway simulate --yes --trace OUT makes it all the same, and headway view OUT shows it", "%s", takes)
	}
	prediction, err := experiment.Expect(one.Document, one.Setting)
	if err != nil {
		return "", nil, experiment.KeyError(err)
	}
	dir, err := os.MkdirTemp("", "headway-view-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, strings.TrimSuffix(filepath.Base(c.Path), filepath.Ext(c.Path))+".ndjson")
	file, err := createTrace(path)
	if err == nil {
		_, err = experiment.Simulate(one, prediction, simulationFiles{trace: file}, newStepProgress(a))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return path, remove, nil
}
