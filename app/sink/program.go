package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// program is a process that reads lines.
type program struct {
	command *exec.Cmd
	to      io.WriteCloser
	ended   chan error
	said    tail
	broken  error
}

// Program is a sink into a program's standard input: one JSON object a line for every train step. The
// object has "step", "time" (Unix time in seconds) and "figures", an object of numbers. That is how
// figures get to W&B, whose format is its library's own: python -m headway.figures reads these lines.
// The program's standard output and error are appended to the file log, as far as there is room. At the end its input is
// closed and its end is waited for.
func Program(arguments []string, log string) (Sink, error) {
	if len(arguments) == 0 || arguments[0] == "" {
		return nil, errors.New("sinks.command: names no program")
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, errorOf("sinks.command", err)
	}
	p := &program{command: exec.Command(arguments[0], arguments[1:]...), ended: make(chan error, 1)}
	p.command.Stdout = io.MultiWriter(&p.said, lossy{file})
	p.command.Stderr = p.command.Stdout
	p.command.WaitDelay = 2 * time.Second
	apart(p.command)
	if p.to, err = p.command.StdinPipe(); err == nil {
		err = p.command.Start()
	}
	if err != nil {
		file.Close()
		return nil, errorOf("sinks.command", err)
	}
	go func() {
		err := p.command.Wait()
		file.Close()
		p.ended <- err
	}()
	return p, nil
}

func (p *program) Name() string { return "command " + p.command.Args[0] }

// lineOf is what the program reads of a step.
func lineOf(s Step) ([]byte, error) {
	figures := make(map[string]float64, len(s.Figures))
	for _, f := range s.Figures {
		figures[f.Name] = f.Value
	}
	line, err := json.Marshal(map[string]any{"step": s.Step, "time": float64(s.Time.UnixMilli()) / 1000, "figures": figures})
	return append(line, '\n'), err
}

func (p *program) Write(ctx context.Context, steps []Step) error {
	if p.broken != nil {
		return p.broken // lines were cut: what it would read next is none
	}
	var text []byte
	for _, s := range steps {
		line, err := lineOf(s)
		if err != nil {
			return err
		}
		text = append(text, line...)
	}
	stop := context.AfterFunc(ctx, func() { p.to.Close() }) // it may have stopped reading
	defer stop()
	if _, err := p.to.Write(text); err != nil {
		p.broken = fmt.Errorf("%w (%w)%s", ErrBroken, err, p.said.words())
		return p.broken
	}
	return nil
}

// Close closes the program's input and waits for its end.
func (p *program) Close(ctx context.Context, _ bool) error {
	p.to.Close()
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("%w%s", err, p.said.words())
		}
		return nil
	case <-ctx.Done():
		kill(p.command)
		<-p.ended
		return errors.New("it did not end in time")
	}
}

// lossy writes what it can. A program whose output nobody took would be ended by its next word.
type lossy struct{ to io.Writer }

func (l lossy) Write(text []byte) (int, error) {
	_, _ = l.to.Write(text)
	return len(text), nil
}

// tail keeps the last of what is written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-400):]
	return len(text), nil
}

// words are what it last said, as the end of a sentence.
func (t *tail) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(t.text)); text != "" {
		return ": " + text
	}
	return ""
}
