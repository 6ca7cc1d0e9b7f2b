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
	// Plans holds the searches of the study of the controller for its oracle, and the arms that are
	// not the controller. Those stay the same when the controller alone changes. It is opened with
	// [ControlGround] as its program; nil keeps none.
	Plans *Kept
}

// Run returns the figures of trials in their order. It ends early with the
// context's error, or that of the first trial in order that cannot be simulated;
// trials finished by then are kept.
func (s Simulator) Run(ctx context.Context, trials []Trial) ([]Figures, error) {
	return inParallel(ctx, len(trials), s.Progress, func(i int) (Figures, error) { return s.one(trials[i]) })
}

func (s Simulator) one(t Trial) (Figures, error) {
	return kept(s.Kept, t.key(), t.Run)
}

// kept returns what is kept under a key, or else makes and keeps it.
func kept[T any](k *Kept, key string, do func() (T, error)) (made T, err error) {
	if known, err := k.get(key, &made); known || err != nil {
		return made, err
	}
	if made, err = do(); err != nil {
		return made, err
	}
	return made, k.put(key, made)
}

// Kept is a file of finished trials, a line each, so that a study that was broken
// off goes on where it was. Its first line names the program that made them:
// figures of another program are not taken for its own.
type Kept struct {
	mu   sync.Mutex
	file *os.File
	done map[string]json.RawMessage
}

// keptLine is a line of the file: the program, or a trial.
type keptLine struct {
	Program string          `json:"program,omitempty"`
	Trial   string          `json:"trial,omitempty"`
	Figures json.RawMessage `json:"figures,omitempty"`
}

// OpenKept opens or makes a file of finished trials of a program. A line that was
// torn by the end of the program is cut off; a file of another program is refused.
func OpenKept(path, program string) (*Kept, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	k := &Kept{file: file, done: map[string]json.RawMessage{}}
	if err := k.read(path, program); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return k, nil
}

// KeptBy is the program that made a file of finished trials, or runs; "" where it holds none.
func KeptBy(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := bufio.NewReader(file).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return "", nil // torn, or empty
	}
	if err != nil {
		return "", err
	}
	var line keptLine
	if err := json.Unmarshal(text, &line); err != nil {
		return "", fmt.Errorf("study: %s holds a line that is no trial: %w", path, err)
	}
	return line.Program, nil
}

// ErrOtherProgram is wrapped by the error of OpenKept for a file of another program.
var ErrOtherProgram = errors.New("the finished trials are another program's")

func (k *Kept) read(path, program string) error {
	none, err := readLines(k.file, func(first bool, text []byte) error {
		var line keptLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("study: %s holds a line that is no trial: %w", path, err)
		}
		switch {
		case first && line.Program != program:
			return fmt.Errorf("study: %s: %w: %q, want %q", path, ErrOtherProgram, line.Program, program)
		case line.Figures != nil:
			k.done[line.Trial] = line.Figures
		}
		return nil
	})
	if none && err == nil {
		err = writeLine(k.file, keptLine{Program: program})
	}
	return err
}

// get reads what is kept under a key; known is false if nothing is.
func (k *Kept) get(key string, into any) (known bool, err error) {
	if k == nil {
		return false, nil
	}
	k.mu.Lock()
	text, known := k.done[key]
	k.mu.Unlock()
	if !known {
		return false, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("study: the record of %s cannot be read: %w", key, err)
	}
	return true, nil
}

// put keeps a value under a key.
func (k *Kept) put(key string, value any) error {
	if k == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done[key] = text
	return writeLine(k.file, keptLine{Trial: key, Figures: text})
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
