package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// program is a started program with all of its process group.
type program struct {
	command *exec.Cmd
	// done is closed when it has ended, after err was set: never nil.
	done chan struct{}
	err  error
}

// start starts a program in a process group of its own, which writes to a file.
func start(argv, env []string, log *os.File) (*program, error) {
	p := &program{command: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.command.Env, p.command.Stdout, p.command.Stderr = env, log, log
	lead(p.command)
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		if p.err == nil {
			p.err = errors.New("exit status 0")
		}
		kill(p.command) // at once, while no other group can have its number
		close(p.done)
	}()
	return p, nil
}

// ended returns how the program has ended, nil while it runs.
func (p *program) ended() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// killedWait is how long a killed program may take to end: the kernel has much to free of a large one, and a
// loaded machine gives it little time.
const killedWait = 30 * time.Second

// end asks the group to end, and kills what is left of it after the grace, or when nobody waits any more.
func (p *program) end(ctx context.Context, grace time.Duration) error {
	if p.ended() != nil {
		return nil
	}
	terminate(p.command)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	kill(p.command)
	timer.Reset(killedWait)
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s (process %d) has not ended %v after it was killed", filepath.Base(p.command.Path), p.command.Process.Pid, killedWait)
	}
}

// lastBytes and lastLines bound what an error quotes of a log.
const (
	lastBytes = 2 << 10
	lastLines = 5
)

// lastWords is the end of a log, as the end of a sentence.
func lastWords(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > lastBytes {
		if _, err := f.Seek(-lastBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, lastBytes))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) == 1 && lines[0] == "" {
		return "; " + path + " says nothing"
	}
	return "; " + path + " says last:\n" + strings.Join(lines[max(0, len(lines)-lastLines):], "\n")
}
