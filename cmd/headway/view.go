package main

import (
	"context"
	"errors"
	"fmt"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// viewCmd shows a recorded run in a browser.
type viewCmd struct {
	output
	Path   string   `arg:"" name:"run" help:"A run directory or a trace file, of a run that has ended or still goes on; or a document (FILE.yaml), which is simulated."`
	Listen string   `placeholder:"ADDRESS" help:"Address and port of the pages, on this machine (default: 127.0.0.1:7070, or the next free port)."`
	Set    []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of a document by its dotted path. Repeatable."`
}

// Help explains what is shown; the command line prints it after the flags.
func (c *viewCmd) Help() string {
	return `The pages are served until Ctrl-C. Of a long run, what has been read so far is shown at once. A run
that still goes on is followed. A document is simulated first. Nothing is asked of another machine, and
nothing of the run is changed.

  headway view runs/NAME                a run directory
  headway view out.ndjson               the trace of a simulation (headway simulate --trace)
  headway view plan.yaml                a document, simulated`
}

// viewListen is where pages are served by default.
const viewListen = "127.0.0.1:7070"

// viewPorts is how many ports from the default one on are tried.
const viewPorts = 32

// Run serves the pages until it is interrupted.
func (c *viewCmd) Run(a *app.Process) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	shown, err := openRecorded(path, a.Now)
	if err != nil {
		return err
	}
	defer shown.close()
	listener, err := listenToView(c.Listen)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String() + "/"
	if c.JSON {
		err = printJSON(a.Stdout, map[string]string{"run": c.Path, "url": url})
	} else {
		_, err = fmt.Fprintf(a.Stdout, "%s is shown at %s (Ctrl-C ends it)\n", c.Path, url)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		shown.read(ctx)
	}()
	err = servePages(ctx, listener, shown.model.Handler())
	cancel()
	<-read
	return err
}

// listenToView opens the port of the pages: the one that is named or, where none is, the first free one.
func listenToView(address string) (net.Listener, error) {
	if address == "" {
		return firstFree(viewListen)
	}
	if err := checkViewListen(address); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, failure.Usage("choose another port, or leave --listen out: the next free one is taken", "--listen %s: %w", address, err)
	}
	return listener, nil
}

// checkViewListen refuses addresses that others can reach: whoever opens the pages reads prompts and responses.
func checkViewListen(address string) error {
	const hint = "HOST:PORT with a host of this machine, such as 127.0.0.1:7070; from elsewhere: ssh -L 7070:127.0.0.1:7070 HOST"
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return failure.Usage(hint, "--listen %s is not an address: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return failure.Usage(hint, "--listen %s can be reached from other machines, and the pages ask nobody who they are", address)
	}
	return nil
}

// firstFree listens on an address or, where something listens there, on the next ports. A port that nobody
// chose is no reason to fail: in the end any free one is taken.
func firstFree(address string) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		return nil, err
	}
	for next := port; next < port+viewPorts && next < 1<<16; next++ {
		if listener, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(next))); err == nil {
			return listener, nil
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// viewDrain is how long answers under way may take at the end.
const viewDrain = 2 * time.Second

// servePages serves on a listener, which it closes, until the context ends.
func servePages(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: sameSite(handler), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), viewDrain)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	<-served
	return nil
}

// sameSite refuses requests under a foreign name: a page elsewhere that resolves its own name to this machine
// would read the run otherwise.
func sameSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "ask this machine by its address, 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
