package study

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Simulator runs trials on all cores and keeps finished ones.
type Simulator struct {
	// Progress, if not nil, is called after every finished trial, kept ones included, by one
	// goroutine at a time.
	Progress func(done, all int)
	// Kept holds finished trials; nil keeps none.
	Kept *Kept
}

// Run returns the figures of trials in their order. It ends early with the
// context's error, or that of the first trial in order that cannot be simulated;
// trials finished by then are kept.
func (s Simulator) Run(ctx context.Context, trials []Trial) ([]Figures, error) {
	return parallel(ctx, len(trials), s.Progress, func(i int) (Figures, error) { return s.one(trials[i]) })
}

func (s Simulator) one(t Trial) (Figures, error) {
	if f, ok := s.Kept.get(t.key()); ok {
		return f, nil
	}
	f, err := t.Run()
	if err != nil {
		return f, err
	}
	return f, s.Kept.put(t.key(), f)
}

// Kept is a file of finished trials, a line each, so that a study that was broken
// off goes on where it was. Its first line names the program that made them:
// figures of another program are not taken for its own.
type Kept struct {
	mu   sync.Mutex
	file *os.File
	done map[string]Figures
}

// keptLine is a line of the file: the program, or a trial.
type keptLine struct {
	Program string   `json:"program,omitempty"`
	Trial   string   `json:"trial,omitempty"`
	Figures *Figures `json:"figures,omitempty"`
}

// OpenKept opens or makes a file of finished trials of a program. A line that was
// torn by the end of the program is cut off; a file of another program is refused.
func OpenKept(path, program string) (*Kept, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	k := &Kept{file: file, done: map[string]Figures{}}
	if err := k.read(path, program); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return k, nil
}

// ErrOtherProgram is wrapped by the error of OpenKept for a file of another program.
var ErrOtherProgram = errors.New("the finished trials are another program's")

func (k *Kept) read(path, program string) error {
	reader := bufio.NewReader(k.file)
	whole := int64(0)
	for {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var line keptLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("study: %s holds a line that is no trial: %w", path, err)
		}
		switch {
		case whole == 0 && line.Program != program:
			return fmt.Errorf("study: %s: %w: %q, want %q", path, ErrOtherProgram, line.Program, program)
		case line.Figures != nil:
			k.done[line.Trial] = *line.Figures
		}
		whole += int64(len(text))
	}
	if err := k.file.Truncate(whole); err != nil {
		return err
	}
	if _, err := k.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		return k.write(keptLine{Program: program})
	}
	return nil
}

func (k *Kept) write(line keptLine) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = k.file.Write(append(text, '\n'))
	return err
}

func (k *Kept) get(key string) (Figures, bool) {
	if k == nil {
		return Figures{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	f, ok := k.done[key]
	return f, ok
}

func (k *Kept) put(key string, f Figures) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done[key] = f
	return k.write(keptLine{Trial: key, Figures: &f})
}

// Close closes the file.
func (k *Kept) Close() error {
	if k == nil {
		return nil
	}
	if err := k.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}
