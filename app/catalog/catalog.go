package catalog

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/store/lock"
)

// States of a run.
const (
	// Running: a process writes it.
	Running = "running"
	// Complete: all train steps of its document are made.
	Complete = "complete"
	// Stopped: it ended in order before that.
	Stopped = "stopped"
	// Died: its process ended without a word. It can go on.
	Died = "died"
	// Broken: the loop broke one of its invariants.
	Broken = "broken"
	// Empty: it ended before its first event.
	Empty = "empty"
	// Unknown: its log is in a NATS cluster and has no end, so that a process elsewhere may write it.
	Unknown = "unknown"
)

// Run is one run directory.
type Run struct {
	// Name is the directory's own, Dir its path.
	Name string `json:"name"`
	Dir  string `json:"dir"`
	// Command made it: run or serve.
	Command string `json:"command"`
	// State is running, complete, stopped, died, broken, empty or unknown.
	State string `json:"state"`
	// Ended is the reason in its trace, such as steps or stopped; "" for a run without an end.
	Ended string `json:"ended,omitempty"`
	// PID is the process that writes it, "" for none.
	PID string `json:"pid,omitempty"`
	// Steps are the train steps made, Planned those of its document; 0 where that cannot be read.
	Steps   loop.Version `json:"steps"`
	Planned int          `json:"steps_planned"`
	// Changed is when it was last written, AgeS the seconds since.
	Changed time.Time `json:"changed"`
	AgeS    float64   `json:"age_wall_s"`
	// Bytes is the size of all its files.
	Bytes int64 `json:"bytes"`
	// Reward and Loss are of the newest train step, absent before the first.
	Reward *float64 `json:"reward,omitempty"`
	Loss   *float64 `json:"loss,omitempty"`
}

// List returns the runs of a folder, the newest first. It passes over other directories, files and links.
// A folder that does not exist has none. The error is of a folder that cannot be read.
func List(folder string, now time.Time) ([]Run, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Run
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if run, is := read(filepath.Join(folder, entry.Name()), now); is {
			found = append(found, run)
		}
	}
	slices.SortStableFunc(found, func(a, b Run) int { return b.Changed.Compare(a.Changed) })
	return found, nil
}

// read describes a run directory, and reports whether it is one.
func read(dir string, now time.Time) (Run, bool) {
	r := Run{Name: filepath.Base(dir), Dir: dir}
	command, is := madeBy(dir)
	if !is {
		return Run{}, false
	}
	r.Command = command
	log := trace.Path(dir)
	r.Bytes, r.Changed = Size(dir), changed(log, filepath.Join(dir, steps.File), filepath.Join(dir, origin.AddressFile))
	r.AgeS = max(0, now.Sub(r.Changed).Seconds())
	cluster := false // whose writers hold no lock here
	if document, err := config.LoadRecorded(filepath.Join(dir, parts.ConfigFile)); err == nil {
		r.Planned, cluster = document.Trainer.Steps, command == "serve" && !document.Store.NATS.Inside()
	}
	if line := steps.Newest(dir); line != nil {
		r.Steps, r.Reward, r.Loss = line.Step, &line.Reward, &line.Loss
	}
	if r.Ended, _ = trace.Ending(log); r.Ended == "" {
		if _, finished := origin.FinishedAt(dir); finished {
			r.Ended = loop.ReasonSteps.String()
		}
	}
	var held bool
	r.PID, held = holder(dir)
	_, broken := os.Lstat(filepath.Join(dir, record.BrokenFile))
	switch info, err := os.Stat(log); {
	case held:
		r.State = Running
	case broken == nil:
		r.State = Broken
	case err == nil && info.Size() == 0:
		r.State = Empty
	case r.Ended == loop.ReasonSteps.String():
		r.State = Complete
	case r.Ended == "" && cluster:
		r.State = Unknown
	case r.Ended != "" || err != nil: // without a trace nobody knows how it ended
		r.State = Stopped
	default:
		r.State = Died
	}
	return r, true
}

// madeBy says which command made a run directory, and whether it is one: it has the document of a run, and its trace or what a
// control plane keeps beside (store.trace may be none). One of these alone may be of something else.
func madeBy(dir string) (command string, is bool) {
	regular := func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode().IsRegular()
	}
	if !regular(filepath.Join(dir, parts.ConfigFile)) {
		return "", false
	}
	traced := regular(trace.Path(dir))
	switch made, _ := origin.Of(dir); made {
	case origin.Run:
		return "run", traced
	case origin.Serve:
		_, said := origin.AddressOf(dir)
		return "serve", traced || said
	}
	return "", false
}

// lockPatterns are where a run's locks are, under its directory: its trace's, its state's and its log's.
var lockPatterns = []string{"lock", "*.lock", filepath.Join("*", "lock"), filepath.Join("*", "*", "lock")}

// locks are the lock files of a directory.
func locks(dir string) (paths []string, err error) {
	for _, pattern := range lockPatterns {
		found, err := filepath.Glob(filepath.Join(escaped(dir), pattern))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// holder is the process that writes a run.
func holder(dir string) (pid string, held bool) {
	paths, _ := locks(dir)
	for _, path := range paths {
		if who, is := lock.Held(path); is {
			pid, held = cmp.Or(pid, who), true
		}
	}
	return pid, held
}

// changed is when the newest of some files was written, the zero time where none is there.
func changed(paths ...string) (newest time.Time) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

// Size is the size of all files of a directory in bytes, as far as they can be read.
func Size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
