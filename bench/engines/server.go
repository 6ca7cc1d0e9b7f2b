package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// startMax is how long a server may take until it answers.
const startMax = 15 * time.Minute

// server is one that runs.
type server struct {
	url    string
	cmd    *exec.Cmd
	exited chan error
}

// start starts a server with the first of the models and waits until it answers.
func (h *harness) start(ctx context.Context, e engine, number int, python string, models []string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(h.cache, "logs", fmt.Sprintf("%s-%d.log", e.name, number)))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := e.command(python, models[0], port)
	s := &server{url: fmt.Sprintf("http://127.0.0.1:%d", port), cmd: exec.Command(args[0], args[1:]...), exited: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), e.environment(python)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	inGroup(s.cmd)
	h.say("starting %s on %s, log %s", e.title, s.url, log.Name())
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.exited <- s.cmd.Wait() }()
	if err := s.await(ctx, e.health); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w; its log is %s", e.title, err, log.Name())
	}
	h.say("%s answers", e.title)
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

// stop ends the server and all that it has started.
func (s *server) stop() {
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

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
