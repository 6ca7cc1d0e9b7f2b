package verifier

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// errEnded is wrapped where a program ended, or closed its standard output, instead of answering.
var errEnded = errors.New("it ended without an answer")

// process is one running program. One goroutine reads what it answers, another what it complains of.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	lines   chan line
	// over is closed when the process is being ended, which ends its goroutines.
	over chan struct{}
	// reading has the two goroutines.
	reading sync.WaitGroup
	output  *os.File
	errors  *os.File
	tail    tail
}

// line is one that the program wrote. more: when it was read there was more behind it already.
type line struct {
	text []byte
	more bool
	err  error
}

func startProcess(command *exec.Cmd) (*process, error) {
	p := &process{command: command, lines: make(chan line), over: make(chan struct{})}
	ownTree(p.command)
	outputRead, outputWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errorsRead, errorsWrite, err := os.Pipe()
	if err != nil {
		outputRead.Close()
		outputWrite.Close()
		return nil, err
	}
	p.command.Stdout, p.command.Stderr = outputWrite, errorsWrite
	p.output, p.errors = outputRead, errorsRead
	p.input, err = p.command.StdinPipe()
	if err == nil {
		err = p.command.Start()
	}
	outputWrite.Close()
	errorsWrite.Close()
	if err != nil {
		outputRead.Close()
		errorsRead.Close()
		return nil, fmt.Errorf("%s does not start: %w", command.Path, err)
	}
	p.reading.Go(p.readAnswers)
	p.reading.Go(func() { _, _ = io.Copy(&p.tail, p.errors) })
	return p, nil
}

// readAnswers hands out lines until the program closes its output or is ended.
func (p *process) readAnswers() {
	defer close(p.lines)
	reader := bufio.NewReaderSize(p.output, 64<<10)
	for {
		l := readLine(reader)
		select {
		case p.lines <- l:
		case <-p.over:
			return
		}
		if l.err != nil {
			return
		}
	}
}

// readLine reads up to a newline, and no more than an answer may have.
func readLine(reader *bufio.Reader) (l line) {
	for {
		part, err := reader.ReadSlice('\n')
		l.text = append(l.text, part...)
		switch {
		case err == nil:
			l.more = reader.Buffered() > 0
			return l
		case !errors.Is(err, bufio.ErrBufferFull):
			l.err = errEnded
			return l
		case len(l.text) > answerMax:
			l.err = fmt.Errorf("it wrote %d bytes without a newline, and an answer has at most %d", len(l.text), answerMax)
			return l
		}
	}
}

// ask sends a case and waits for a line. After an error the process must be ended.
func (p *process) ask(ctx context.Context, text []byte) (line, error) {
	// A line that nobody asked for is one too many, whatever it says: which answer was meant?
	select {
	case l := <-p.lines:
		if l.err != nil {
			return line{}, fmt.Errorf("after its last answer: %w", l.err)
		}
		return line{}, fmt.Errorf("it wrote a line that answers nothing, after its last answer: %q", clip(string(l.text), 200))
	default:
	}
	wrote := make(chan error, 1)
	go func() { // ends with the process, if not before
		_, err := p.input.Write(text)
		wrote <- err
	}()
	for {
		select {
		case err := <-wrote:
			if err != nil {
				return line{}, fmt.Errorf("%w: it does not read its standard input: %w", errEnded, err)
			}
			wrote = nil
		case l, ok := <-p.lines:
			if !ok {
				return line{}, errEnded
			}
			return l, nil
		case <-ctx.Done():
			return line{}, ctx.Err()
		}
	}
}

// answer reads a line as the answer to one case.
func (l line) answer(id string) (answered, error) {
	if l.err != nil {
		if len(l.text) > 0 {
			return answered{}, fmt.Errorf("%w, in the middle of the line %q", l.err, clip(string(l.text), 200))
		}
		return answered{}, l.err
	}
	a, err := parseAnswer(l.text)
	switch {
	case err != nil:
		return a, fmt.Errorf("its answer: %w (standard output is for answers alone: write everything else to standard error)", err)
	case a.id == "":
		return a, fmt.Errorf(`its answer has no "id": send back the one of the case, %q`, id)
	case a.id != id:
		return a, fmt.Errorf("it answers case %q, and %q was asked", clip(a.id, 80), id)
	case l.more:
		return a, fmt.Errorf("it wrote more behind its answer to case %q: one case has one answer", id)
	}
	return a, nil
}

// end ends the program with all that it has started, and returns the end of its complaints.
func (p *process) end() string {
	close(p.over)
	killTree(p.command)
	p.input.Close()
	_ = p.command.Wait() // it was killed: that is how it ends
	p.output.Close()
	p.errors.Close()
	p.reading.Wait()
	return p.tail.String()
}

// tail keeps the last bytes of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailMax = 2000

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if len(t.text) > tailMax {
		t.text = append(t.text[:0], t.text[len(t.text)-tailMax:]...)
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.text), "\uFFFD"))
}
