package host

import (
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

	"github.com/headway-rl/headway/sandbox"
)

// State is a directory with one of each box's name. A box is there from before it is made until
// after it is removed, so that a crash leaves none that nobody knows.
type State struct{ dir string }

// DefaultDir is where boxes are kept when nobody says otherwise: the user's own directory below the
// temporary one, so that the next process of the user finds it.
func DefaultDir() string {
	return filepath.Join(os.TempDir(), "headway-sandboxes-"+strconv.Itoa(os.Getuid()))
}

// OpenState opens the state of one driver in a directory, empty for DefaultDir. Others must not be
// able to write there: whoever could would choose what Destroy kills.
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

// Path is a box's directory.
func (s *State) Path(id sandbox.ID) string { return filepath.Join(s.dir, string(id)) }

// Make makes a box's directory. A box of that name that is there already is a Failure of class Refused.
func (s *State) Make(id sandbox.ID) (string, error) {
	path := s.Path(id)
	err := os.Mkdir(path, 0o711)
	switch {
	case errors.Is(err, fs.ErrExist):
		return "", sandbox.Fail(sandbox.Refused, "create", id, "there is a box of this name: destroy it or name another")
	case err != nil:
		return "", sandbox.Fail(sandbox.StartFailed, "create", id, "its directory: %w", err)
	}
	return path, nil
}

// Process names a process among all that ever were since the host started: a number is used again.
type Process struct {
	PID int `json:"pid"`
	// Start is the tick of the host's clock at which it began, Boot the host's own start.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

const recordName = "process.json"

// Record notes a box's process.
func (s *State) Record(id sandbox.ID, pid int) error {
	start, err := startOf(pid)
	if err != nil {
		return err
	}
	text, err := json.Marshal(Process{pid, start, boot()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Path(id), recordName), text, 0o600)
}

// Alive returns a box's process where it was recorded and is still the same one.
func (s *State) Alive(id sandbox.ID) (pid int, alive bool) {
	text, err := os.ReadFile(filepath.Join(s.Path(id), recordName))
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
