package host

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/agent"
)

// State is a directory with one of each box's name. A box is there from before it is made until
// after it is removed, so that a crash leaves no unknown one.
type State struct{ dir string }

// DefaultDir is where boxes are kept unless told otherwise. It is the user's own directory below the temporary one, so
// that the next process of the user finds it.
func DefaultDir() string {
	return filepath.Join(os.TempDir(), "headway-sandboxes-"+strconv.Itoa(os.Getuid()))
}

// OpenState opens the state of one driver in a directory, empty for DefaultDir. Others must not be
// able to write there: a writer would choose the processes that Destroy kills.
func OpenState(dir, driver string) (*State, error) {
	if dir == "" {
		dir = DefaultDir()
	}
	own := filepath.Join(dir, driver)
	if err := os.MkdirAll(own, 0o711); err != nil {
		return nil, fmt.Errorf("the directory of boxes: %w", err)
	}
	for _, d := range []string{dir, own} {
		info, err := os.Lstat(d)
		if err != nil {
			return nil, fmt.Errorf("the directory of boxes: %w", err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || ok && int(stat.Uid) != os.Getuid() {
			return nil, fmt.Errorf("the directory of boxes %s has to be a directory of user %d that no other may write to: remove it or name another", d, os.Getuid())
		}
	}
	return &State{own}, nil
}

// Path is the directory of a box of that name, or of what a driver has for all, whose name no box has.
func (s *State) Path(id sandbox.ID) string { return filepath.Join(s.dir, string(id)) }

// Entry is one box's directory. Its token tells it from boxes of the same name before and after it. A process that
// cleans up after one must not meet the next.
type Entry struct {
	ID    sandbox.ID
	Token string
	state *State
}

const (
	tokenName  = "token"
	recordName = "process.json"
)

// Make makes a box's directory. A box of that name that is there already is a Failure of class Refused.
func (s *State) Make(id sandbox.ID) (*Entry, error) {
	e := &Entry{ID: id, Token: strings.ToLower(rand.Text()[:10]) + "-" + self().String(), state: s}
	// It gets its name with its token in it: nobody meets half of one.
	err := os.Mkdir(e.aside(), 0o711)
	if err == nil {
		err = os.WriteFile(filepath.Join(e.aside(), tokenName), []byte(e.Token), 0o600)
	}
	if err == nil {
		err = os.Rename(e.aside(), e.Path())
	}
	if err == nil {
		return e, nil
	}
	taken := errors.Is(err, fs.ErrExist) // ENOTEMPTY is one as well
	if failed := os.RemoveAll(e.aside()); failed != nil {
		err = errors.Join(err, failed)
	} else if taken {
		return nil, sandbox.Fail(sandbox.Refused, "create", id, "there is a box of this name: destroy it or name another")
	}
	return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "its directory: %w", err)
}

// aside is where the directory is before it has the box's name, and after it had it.
func (e *Entry) aside() string { return e.state.Path("-" + e.Name()) }

// Sweep removes the remains of boxes whose makers have ended. Those of the owner are left, because it asks for
// their names; any other is destroyed. A box that cannot be removed is met again the next time.
func (s *State) Sweep(owner string, destroy func(sandbox.ID) error) {
	entries, _ := os.ReadDir(s.dir)
	for _, entry := range entries {
		id := sandbox.ID(entry.Name())
		switch {
		case !entry.IsDir() || id.OwnedBy(owner):
		case strings.HasPrefix(entry.Name(), "-"):
			if abandoned(entry.Name()) {
				_ = agent.RemoveAll(s.Path(id))
			}
		default:
			if e := s.Find(id); e != nil && abandoned(e.Token) {
				_ = destroy(id)
			}
		}
	}
}

// Find returns the box of that name, nil where there is none.
func (s *State) Find(id sandbox.ID) *Entry {
	e := &Entry{ID: id, state: s}
	if _, err := os.Lstat(e.Path()); err != nil {
		return nil
	}
	e.Token = e.written()
	return e
}

// Path is the box's directory.
func (e *Entry) Path() string { return e.state.Path(e.ID) }

// Name is the box's, and no other's of that ID.
func (e *Entry) Name() sandbox.ID { return e.ID + "-" + sandbox.ID(e.Token) }

func (e *Entry) written() string {
	text, _ := os.ReadFile(filepath.Join(e.Path(), tokenName))
	return string(text)
}

// Remove removes the directory, unless it is another box's by now.
func (e *Entry) Remove() error {
	if e.written() != e.Token {
		return nil
	}
	gone := e.aside()
	if err := os.Rename(e.Path(), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return agent.RemoveAll(gone)
}

// Process names a process among all that ever were since the host started: a number is used again.
type Process struct {
	PID int `json:"pid"`
	// Start is the tick of the host's clock at which it began, Boot the host's own start.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// Record notes the box's process.
func (e *Entry) Record(pid int) error {
	start, err := startOf(pid)
	if err != nil {
		return err
	}
	text, err := json.Marshal(Process{pid, start, boot()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.Path(), recordName), text, 0o600)
}

// Alive returns the box's process where it was recorded and is still the same one.
func (e *Entry) Alive() (pid int, alive bool) {
	text, err := os.ReadFile(filepath.Join(e.Path(), recordName))
	if err != nil {
		return 0, false
	}
	var p Process
	if json.Unmarshal(text, &p) != nil || p.PID <= 1 {
		return 0, false
	}
	start, err := startOf(p.PID)
	return p.PID, err == nil && start == p.Start && p.Boot == boot()
}

// List names the boxes of an owner.
func (s *State) List(owner string) ([]sandbox.ID, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the directory of boxes: %w", err)
	}
	var ids []sandbox.ID
	for _, entry := range entries {
		if id := sandbox.ID(entry.Name()); id.OwnedBy(owner) && entry.IsDir() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// startOf is the tick at which a process began, the 22nd field of its line in /proc.
func startOf(pid int) (uint64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may itself have any byte.
	after := string(text[strings.LastIndexByte(string(text), ')')+1:])
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name, fewer than 20", pid, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func boot() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
