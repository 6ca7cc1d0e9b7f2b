package plane

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

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

// fileRegistry implements [upstream.CollectiveRegistry] by a file. Where it cannot be written the run goes on: what is
// lost is memory of a server, after a crash.
type fileRegistry struct {
	path string
	logf func(format string, args ...any)

	mu     sync.Mutex
	groups map[string][]string // by engine, the oldest first
	failed bool                // it was said that the file cannot be written
}

// openRegistry reads what the process before has noted.
func openRegistry(dir string, logf func(format string, args ...any)) *fileRegistry {
	path, err := replace.Renamed(dir, earlierGroupsFile, groupsFile)
	b := &fileRegistry{path: path, logf: logf}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &b.groups)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logf("which groups engines were left in is not known (%v): with NCCL each keeps memory of an engine's GPUs until its server is started again", err)
	}
	if b.groups == nil {
		b.groups = make(map[string][]string)
	}
	return b
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

// write replaces the file as a whole. b.mu must be held.
func (b *fileRegistry) write() error {
	if len(b.groups) == 0 {
		if err := os.Remove(b.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(b.groups); err != nil {
		return err
	}
	if err := os.WriteFile(b.path+".new", text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(b.path+".new", b.path)
}
