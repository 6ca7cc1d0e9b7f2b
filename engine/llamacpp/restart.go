package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// healthEvery is how often a server that is starting is asked whether it has loaded its model.
const healthEvery = 100 * time.Millisecond

// errNoCommand is what a restart says where nothing says how.
var errNoCommand = errors.New("llama-server takes new weights by being started again, and nothing says how: give engines.N.command")

// process is the server that Restart has started, if any.
type process struct {
	mu      sync.Mutex // held by the Restart or Stop that is at work
	running *child
}

// child is one started program with everything that it has started.
type child struct {
	command *exec.Cmd
	said    *tail
	// done is closed when the program has ended, after err was set.
	done chan struct{}
	err  error
}

// labelled reports whether the command tells the server the label of what it serves.
func (d *Dialect) labelled() bool {
	return strings.Contains(strings.Join(d.options.Command, " "), "{label}")
}

// replaced puts an update's words into a command.
func replaced(command []string, u upstream.Update) []string {
	words := strings.NewReplacer("{weights}", u.Dir, "{label}", u.Label)
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = words.Replace(word)
	}
	return out
}

// Restart implements upstream.Restarter. The weights are converted while the old server still
// answers. A server that fails to load leaves none behind.
func (d *Dialect) Restart(ctx context.Context, s *upstream.Server, u upstream.Update) error {
	if len(d.options.Command) == 0 {
		return errNoCommand
	}
	p := &d.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(d.options.Convert) > 0 {
		if err := d.convert(ctx, u); err != nil {
			return err
		}
	}
	if err := d.end(); err != nil {
		return err
	}
	if err := s.Call(ctx, http.MethodGet, "/health", nil, nil); err == nil || upstream.StatusOf(err) != 0 {
		return fmt.Errorf("something answers at %s that headway has not started, so it cannot start it again: stop it, headway starts it by engines.N.command", s.URL())
	}
	running, err := start(replaced(d.options.Command, u))
	if err != nil {
		return fmt.Errorf("the server's command: %w", err)
	}
	p.running = running
	began := time.Now()
	if err := healthy(ctx, s, running); err != nil {
		return errors.Join(err, d.end())
	}
	d.options.Logf("llama-server at %s: process %d has loaded %s in %.1f s", s.URL(), running.command.Process.Pid, u.Label, time.Since(began).Seconds())
	return nil
}

// Stop implements upstream.Restarter.
func (d *Dialect) Stop() error {
	d.process.mu.Lock()
	defer d.process.mu.Unlock()
	return d.end()
}

// convert runs Convert to its end.
func (d *Dialect) convert(ctx context.Context, u upstream.Update) error {
	running, err := start(replaced(d.options.Convert, u))
	if err != nil {
		return fmt.Errorf("the weights' conversion: %w", err)
	}
	select {
	case <-running.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the weights' conversion was not done in time: %w", ctx.Err()), running.end(d.options.Grace))
	}
	err = running.err
	// What it may have left behind must not write on.
	if left := running.end(d.options.Grace); left != nil {
		return left
	}
	if err != nil {
		return fmt.Errorf("the weights' conversion failed: %w%s", err, running.said)
	}
	return nil
}

// end ends the running server, if there is one. d.process.mu is held.
func (d *Dialect) end() error {
	running := d.process.running
	if running == nil {
		return nil
	}
	if err := running.end(d.options.Grace); err != nil {
		return err
	}
	d.process.running = nil
	return nil
}

// start starts a program in a process group of its own.
func start(command []string) (*child, error) {
	if command[0] == "" {
		return nil, errors.New("its first word, the program, is empty")
	}
	c := &child{said: &tail{}, done: make(chan struct{})}
	c.command = exec.Command(command[0], command[1:]...)
	c.command.Stdout, c.command.Stderr = c.said, c.said
	// A descendant that keeps the output open does not keep the end from being noticed.
	c.command.WaitDelay = time.Second
	group(c.command)
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.command.Wait()
		// At once, while no other group can have its number: what it has started ends with it.
		kill(c.command)
		close(c.done)
	}()
	return c, nil
}

// end asks the whole group to end, and kills what is left of it after the grace.
func (c *child) end(grace time.Duration) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	terminate(c.command)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
	}
	kill(c.command)
	timer.Reset(grace)
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s (process %d) has not ended %s after it was killed", filepath.Base(c.command.Path), c.command.Process.Pid, grace)
	}
}

// healthy waits until a started server has loaded its model.
func healthy(ctx context.Context, s *upstream.Server, running *child) error {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		err := s.Call(ctx, http.MethodGet, "/health", nil, nil)
		select {
		case <-running.done:
			return fmt.Errorf("the server ended while it was starting: %w%s", ended(running.err), running.said)
		default:
		}
		if err == nil {
			return nil
		}
		if status := upstream.StatusOf(err); status != 0 && status != http.StatusServiceUnavailable {
			return fmt.Errorf("what the command started is no llama-server: %w", err)
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			return fmt.Errorf("the server has not loaded its weights in time: %w%s", ctx.Err(), running.said)
		case <-ticker.C:
		}
	}
}

// ended names the end of a program, a regular one too.
func ended(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// tailBytes bounds what is kept of a program's output.
const tailBytes = 2 << 10

// tail keeps the end of a program's output, for errors.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, data...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(data), nil
}

// String is the last lines, as the end of a sentence.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	lines = lines[max(0, len(lines)-5):]
	if len(lines) == 1 && lines[0] == "" {
		return ", without a word"
	}
	return "; it said last:\n" + strings.Join(lines, "\n")
}
