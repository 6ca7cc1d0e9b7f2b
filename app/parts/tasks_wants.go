package parts

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/taskset"
)

// unmet is one thing that tasks ask for and a run's sandboxes are not.
type unmet struct {
	tasks int
	first string // the id of the first such task
	text  string
}

// UnmetWants says what the tasks of a set ask for and the sandboxes of the run do not give, one
// sentence each.
func UnmetWants(set *taskset.Set, cfg config.Config) []string {
	var list []unmet
	note := func(task *taskset.Task, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		at := slices.IndexFunc(list, func(u unmet) bool { return u.text == text })
		if at < 0 {
			list, at = append(list, unmet{first: task.ID, text: text}), len(list)
		}
		list[at].tasks++
	}
	for task := range looked(set) {
		notHonoured(task, cfg, note)
	}
	var said []string
	for _, u := range list[:min(len(list), unmetShown)] {
		text := fmt.Sprintf("task %.80s %s", u.first, u.text)
		if u.tasks > 1 {
			text += fmt.Sprintf("; so do %d others", u.tasks-1)
		}
		said = append(said, text)
	}
	if more := len(list) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("and %d more such wants", more))
	}
	return said
}

const (
	// unmetShown bounds how many kinds of wants are said.
	unmetShown = 8
	// wantsLooked bounds how many tasks are looked at: folders are few, and rows of files want nothing.
	wantsLooked = 20000
	// testsTimeoutS is the verifier's own limit of a verdict of kind tests.
	testsTimeoutS = 600
)

// looked are the tasks of a set that are looked at, and as many of those that are held out.
func looked(set *taskset.Set) iter.Seq[*taskset.Task] {
	return func(yield func(*taskset.Task) bool) {
		for i := range min(set.Len(), wantsLooked) {
			if !yield(set.At(int64(i)+1, 0)) {
				return
			}
		}
		for i := range min(set.HeldOutLen(), wantsLooked) {
			if !yield(set.HeldOut(i)) {
				return
			}
		}
	}
}

// notHonoured notes what one task asks for in vain.
func notHonoured(task *taskset.Task, cfg config.Config, note func(*taskset.Task, string, ...any)) {
	w, s, e := task.Wants, cfg.Sandbox, cfg.Environment
	if task.TurnsMax > e.TurnsMax {
		note(task, "may take %d turns, and environment.turns_max is %d", task.TurnsMax, e.TurnsMax)
	}
	if task.TimeoutS > e.TimeoutS {
		note(task, "may take %g s, and environment.timeout_s is %g", task.TimeoutS, e.TimeoutS)
	}
	if !cfg.UsesSandbox() {
		if len(task.Files) > 0 {
			note(task, "has files, and nothing of this run has a sandbox: set environment.tools, or verifier.kind tests")
		}
		return
	}
	if w.Image != "" && w.Image != s.Image {
		note(task, "wants the image %.120s, and sandboxes of this run are made of %s", w.Image, madeOf(s))
	}
	if w.CPUs > s.CPUs {
		note(task, "wants %g processors, and sandbox.cpus is %g", w.CPUs, s.CPUs)
	}
	if w.MemoryMB > int64(s.MemoryMB) {
		note(task, "wants %d MiB of memory, and sandbox.memory_mb is %d", w.MemoryMB, s.MemoryMB)
	}
	if w.DiskMB > int64(s.DiskMB) {
		note(task, "wants %d MiB of disk, and sandbox.disk_mb is %d", w.DiskMB, s.DiskMB)
	}
	if w.Network && !s.Network {
		note(task, "wants a network, and sandbox.network is false")
	}
	if most := cmp.Or(cfg.Environment.Verifier.TimeoutS, testsTimeoutS); w.VerifierTimeoutS > most {
		note(task, "may test for %g s, and environment.verifier.timeout_s is %g", w.VerifierTimeoutS, most)
	}
}

func madeOf(s config.Sandbox) string {
	switch {
	case s.Image != "":
		return "the image " + s.Image
	case s.Root != "":
		return "sandbox.root " + s.Root
	}
	return "what " + s.Driver + " has by itself"
}

// LongestTest is the longest time that a test may take, as far as the verifier waits for it. A task that names no time
// has all of that. It is 0 where no task has a test. The programs of the policy have sandbox.timeout_s.
func LongestTest(set *taskset.Set, cfg config.Config) time.Duration {
	if set == nil || cfg.Environment.Verifier.Kind != "tests" {
		return 0
	}
	waits, longest := cmp.Or(cfg.Environment.Verifier.TimeoutS, testsTimeoutS), 0.0
	for task := range looked(set) {
		if task.Test != "" {
			longest = max(longest, cmp.Or(task.Wants.VerifierTimeoutS, waits))
		}
	}
	return config.Seconds(min(longest, waits))
}
