package plane

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/internal/replace"
)

// groupsFile is where a control plane notes in its run directory which groups with a sender its engines' servers
// may be in: the next one has them left, if this one ends without. It is earlierGroupsFile in the
// directory of an earlier version.
const (
	groupsFile        = "collectives.json"
	earlierGroupsFile = "groups.json"
)

// groupsMax is how many groups are remembered of an engine whose server answers to none.
const groupsMax = 16

// notes keeps what the next writer of a run is to know, whichever directory that has.
type notes interface {
	Note(ctx context.Context, name string, text []byte) error
	// NoteFirst notes a text where there is none, and returns the one that stands.
	NoteFirst(ctx context.Context, name string, text []byte) ([]byte, error)
	Noted(ctx context.Context, name string) ([]byte, error)
}

// groupsPatience bounds the wait for a note of groups: the run goes on without it.
const groupsPatience = 5 * time.Second

// groupsNote is the name under which groups are noted in a cluster.
const groupsNote = "collectives"

// fileRegistry implements [upstream.CollectiveRegistry] by a file, and by a note where writers have a cluster in
// common. Where they cannot be written the run goes on: what is lost is memory of a server, after a crash.
type fileRegistry struct {
	path  string
	notes notes // nil where the directory is all that writers have in common
	logf  func(format string, args ...any)

	mu     sync.Mutex
	groups map[string][]string // by engine, the oldest first
	failed bool                // it was said that the file cannot be written
}

// openRegistry reads what the process before has noted, in the directory and in notes, nil for none.
func openRegistry(dir string, notes notes, logf func(format string, args ...any)) *fileRegistry {
	path, err := replace.Renamed(dir, earlierGroupsFile, groupsFile)
	b := &fileRegistry{path: path, notes: notes, logf: logf}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &b.groups)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, b.readNote()); err != nil {
		logf("which groups engines were left in is not known (%v): with NCCL each keeps memory of an engine's GPUs until its server is started again", err)
	}
	if b.groups == nil {
		b.groups = make(map[string][]string)
	}
	return b
}

// readNote adds the groups that another writer has noted, whose directory may have been another.
func (b *fileRegistry) readNote() error {
	if b.notes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupsPatience)
	defer cancel()
	text, err := b.notes.Noted(ctx, groupsNote)
	if err != nil || text == nil {
		return err
	}
	noted := make(map[string][]string)
	if err := json.Unmarshal(text, &noted); err != nil {
		return err
	}
	if noted == nil { // the text was null
		return nil
	}
	for engine, names := range b.groups {
		for _, name := range names {
			if !slices.Contains(noted[engine], name) {
				noted[engine] = append(noted[engine], name)
			}
		}
	}
	b.groups = noted
	return nil
}

// Joining implements [upstream.CollectiveRegistry].
func (b *fileRegistry) Joining(engine, group string) {
	b.change(engine, func(names []string) []string {
		names = append(names, group)
		return names[max(0, len(names)-groupsMax):]
	})
}

// Left implements [upstream.CollectiveRegistry].
func (b *fileRegistry) Left(engine, group string) {
	b.change(engine, func(names []string) []string {
		return slices.DeleteFunc(names, func(name string) bool { return name == group })
	})
}

// Remembered implements [upstream.CollectiveRegistry].
func (b *fileRegistry) Remembered(engine string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.groups[engine])
}

// change notes other groups of an engine.
func (b *fileRegistry) change(engine string, with func(names []string) []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.groups[engine] = with(b.groups[engine])
	maps.DeleteFunc(b.groups, func(_ string, names []string) bool { return len(names) == 0 })
	if err := b.write(); err != nil && !b.failed {
		b.failed = true
		b.logf("the groups that engines are in cannot be noted, so that none is left after a crash: %v", err)
	}
}

// write replaces file and note as a whole. b.mu must be held.
func (b *fileRegistry) write() error {
	text, err := json.Marshal(b.groups)
	if err != nil {
		return err
	}
	if b.notes != nil {
		ctx, cancel := context.WithTimeout(context.Background(), groupsPatience)
		err = b.notes.Note(ctx, groupsNote, text)
		cancel()
	}
	return errors.Join(err, b.writeFile(append(text, '\n')))
}

func (b *fileRegistry) writeFile(text []byte) error {
	if len(b.groups) == 0 {
		if err := os.Remove(b.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return replace.File(b.path, text, 0o600)
}
