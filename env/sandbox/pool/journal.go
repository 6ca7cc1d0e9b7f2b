package pool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/headway-rl/headway/env/sandbox"
)

// journal is the file of the boxes that are open. Each line says what became of one: it was about to be
// made, it went to a holder, it is nobody's, it is gone. A line is written before what it says is done,
// but for the last, which is written after: so a crash leaves no box that is not in it.
type journal struct {
	logf func(format string, args ...any)

	mu    sync.Mutex
	path  string
	file  *os.File // nil where there is none
	open  map[sandbox.ID]string
	lines int
	torn  bool // the last line may be half a line
	quiet bool // a write failed, and that was said
}

// line of the file.
type line struct {
	Box    sandbox.ID `json:"box"`
	Holder string     `json:"holder,omitempty"`
	Gone   bool       `json:"gone,omitempty"`
}

// readJournal returns the boxes that the last process had open, with their holders. A last line that is
// torn was being written when it ended: what it would have said has not been done.
func readJournal(path string, logf func(string, ...any)) (map[sandbox.ID]string, error) {
	open := map[sandbox.ID]string{}
	if path == "" {
		return open, nil
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sandbox pool: the file of open boxes: %w", err)
	}
	for number, raw := range bytes.SplitAfter(text, []byte("\n")) {
		var l line
		switch err := json.Unmarshal(raw, &l); {
		case len(raw) == 0 || raw[len(raw)-1] != '\n':
			// torn, or nothing after the last line
		case err != nil || l.Box == "":
			logf("%s:%d: no box is named here, going on without: %.80q", path, number+1, raw)
		case l.Gone:
			delete(open, l.Box)
		default:
			open[l.Box] = l.Holder
		}
	}
	return open, nil
}

// newJournal begins the file anew, with nothing open.
func newJournal(path string, logf func(string, ...any)) (*journal, error) {
	b := &journal{path: path, open: map[sandbox.ID]string{}, logf: logf}
	if path == "" {
		return b, nil
	}
	if err := b.rewrite(); err != nil {
		return nil, fmt.Errorf("sandbox pool: the file of open boxes: %w", err)
	}
	return b, nil
}

// rewrite replaces the file by one with the open boxes alone: the old one is there until the new is whole.
func (b *journal) rewrite() error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for id, holder := range b.open {
		if err := encoder.Encode(line{Box: id, Holder: holder}); err != nil {
			return err
		}
	}
	aside := b.path + ".new"
	if err := os.MkdirAll(filepath.Dir(b.path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(aside, text.Bytes(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(aside, b.path); err != nil {
		return err
	}
	file, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if b.file != nil {
		_ = b.file.Close()
	}
	b.file, b.lines, b.torn = file, len(b.open), false
	return nil
}

// opened notes a box that is about to be made, or that is nobody's again.
func (b *journal) opened(id sandbox.ID) { b.note(line{Box: id}) }

// leased notes whose a box is.
func (b *journal) leased(id sandbox.ID, holder string) { b.note(line{Box: id, Holder: holder}) }

// gone notes a box that is no more.
func (b *journal) gone(id sandbox.ID) { b.note(line{Box: id, Gone: true}) }

// note writes a line. A file that cannot be written is no reason to fail a rollout: after a crash the
// driver still knows the boxes, though not their holders.
func (b *journal) note(l line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.Gone {
		delete(b.open, l.Box)
	} else {
		b.open[l.Box] = l.Holder
	}
	if b.file == nil {
		return
	}
	err := b.write(l)
	if err != nil && !b.quiet {
		b.logf("sandbox pool: the file of open boxes: %v; after a crash the driver is asked for them", err)
	}
	b.quiet = err != nil
}

func (b *journal) write(l line) error {
	if b.torn || b.lines > 1000+4*len(b.open) {
		return b.rewrite()
	}
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	b.lines++
	if _, err = b.file.Write(append(raw, '\n')); err != nil {
		b.torn = true // what follows half a line would be lost with it
	}
	return err
}

// left names the boxes that are open, in order.
func (b *journal) left() []sandbox.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.open))
}

// close ends the file. What is open stays in it for the next process.
func (b *journal) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		_ = b.file.Close()
		b.file = nil
	}
}
