package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

// startMax is how long a server may take until it answers.
const startMax = 15 * time.Minute

// server is one that runs; cmd is nil for one that somebody else started.
type server struct {
	url    string
	dir    string
	cmd    *exec.Cmd
	exited chan error
	// beside is the server that it asks, which ends after it; nil for none.
	beside *server
}

// start starts a server with the first of the models, after the one that it asks, and waits until it answers.
func (h *harness) start(ctx context.Context, e engine, number int, models []string) (*server, error) {
	p := site{model: models[0], number: number, dir: filepath.Join(h.cache, "run", fmt.Sprintf("%s-%d", e.name, number))}
	var beside *server
	if e.beside != nil {
		other, err := h.start(ctx, *e.beside, number, models)
		if err != nil {
			return nil, err
		}
		beside, p.beside, p.other = other, other.url, other.dir
	}
	s, err := h.startAt(ctx, e, p, number)
	if err != nil {
		if beside != nil {
			beside.stop()
		}
		return nil, err
	}
	s.beside = beside
	return s, nil
}

// startAt starts a server in a place that lacks its Python and its port yet.
func (h *harness) startAt(ctx context.Context, e engine, p site, number int) (*server, error) {
	python, err := h.installed(ctx, e.packages)
	if err != nil {
		return nil, err
	}
	p.python = python
	if p.port, err = plane.FreePort(); err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(p.dir), os.MkdirAll(p.dir, 0o755)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(h.cache, "logs", fmt.Sprintf("%s-%d.log", e.name, number)))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := e.command(p)
	s := &server{url: fmt.Sprintf("http://127.0.0.1:%d", p.port), dir: p.dir, cmd: exec.Command(args[0], args[1:]...), exited: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), e.environment(p)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	inGroup(s.cmd)
	h.logf("starting %s on %s, log %s", e.title, s.url, log.Name())
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.exited <- s.cmd.Wait() }()
	if err := s.await(ctx, e.health); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w; its log is %s", e.title, err, log.Name())
	}
	h.logf("%s answers", e.title)
	return s, nil
}

// await returns once the server answers.
func (s *server) await(ctx context.Context, health string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startMax, fmt.Errorf("does not answer after %v", startMax))
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+health, nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("has ended before it answered: %w", errors.Join(err, ctx.Err()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop ends the server, all that it has started, and the server that it asks.
func (s *server) stop() {
	if s.cmd == nil {
		return // somebody else started it
	}
	if s.beside != nil {
		defer s.beside.stop()
	}
	for _, kill := range []bool{false, true} {
		endGroup(s.cmd, kill)
		select {
		case err := <-s.exited:
			s.exited <- err
			endGroup(s.cmd, true) // what it left behind
			return
		case <-time.After(20 * time.Second):
		}
	}
}
