package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// ended is a process that has ended, as who made something.
func ended(t *testing.T) maker {
	t.Helper()
	command := exec.Command("/bin/cat")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := startOf(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	m := maker{command.Process.Pid, start, self().space}
	if m.dead() {
		t.Error("a process that runs is taken for dead")
	}
	in.Close()
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	if !m.dead() {
		t.Error("a process that has ended is not taken for dead")
	}
	return m
}

// TestMakers: who made something is told by its name, and one that is not known is never dead.
func TestMakers(t *testing.T) {
	gone := ended(t)
	const random = "x.1-abcdefghij-"
	for name, want := range map[string]bool{
		random + gone.String(): true, "-" + random + gone.String(): true,
		random + self().String(): false,
		random + maker{gone.pid, gone.start, gone.space + 1}.String():      false, // another container's
		random + maker{os.Getpid(), self().start + 1, gone.space}.String(): true,  // its number is used again
		"x.1-abcdefghij": false, "x.1": false, "-etc": false, "-new-123": false, "probe-1": false, "": false,
		gone.String(): false,
	} {
		if abandoned(name) != want {
			t.Errorf("%q is abandoned: %t, want %t", name, !want, want)
		}
	}
}

// TestSweep: what a maker left that has ended is removed: half of a box, one of another owner. What
// is in use, or the owner's own, stays.
func TestSweep(t *testing.T) {
	s, err := OpenState(filepath.Join(t.TempDir(), "boxes"), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []sandbox.ID{"mine.1", "others.1", "live.1"} {
		if _, err := s.Make(id); err != nil {
			t.Fatal(err)
		}
	}
	token := "abcdefghij-" + ended(t).String()
	for _, id := range []string{"mine.1", "others.1"} {
		if err := os.WriteFile(filepath.Join(s.Path(sandbox.ID(id)), tokenName), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"-mine.2-" + token, "-etc", "-live.2-abcdefghij-" + self().String()} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.Sweep("mine", func(id sandbox.ID) error { return s.Find(id).Remove() })
	entries, err := os.ReadDir(s.dir)
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	want := []string{"-etc", "-live.2-abcdefghij-" + self().String(), "live.1", "mine.1"}
	if !slices.Equal(left, want) || err != nil {
		t.Errorf("there is %q, %v, want %q", left, err, want)
	}
	if _, err := s.Make("live.1"); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("a name twice: %v", err)
	}
}

// TestGroups: what a command starts is in the group from its first instruction, Kill ends it, and a
// group whose maker has ended is swept with what runs in it, another is not.
func TestGroups(t *testing.T) {
	name := fmt.Sprintf("headway-test-%d", os.Getpid()) // another process sweeps those of groupName
	groups := findGroups("/proc/self", name)
	t.Cleanup(func() {
		for _, dir := range []string{groups.memory, groups.pids, groups.cpu} {
			if err := os.Remove(dir); dir != "" && err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	})
	if !groups.Processes() {
		t.Skip(groups.Why())
	}
	make := func(token string) (*Group, *exec.Cmd) {
		group, err := groups.Make(sandbox.ID("t.1-"+token), sandbox.Limits{}.WithDefaults(), 0)
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command("/bin/sh", "-c", "cat /proc/self/cgroup; echo .; exec sleep 1000")
		if err := group.Enter(command); err != nil {
			t.Fatal(err)
		}
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		said, buffer := "", [4096]byte{}
		for err == nil && !strings.HasSuffix(said, "\n.\n") {
			n := 0
			n, err = out.Read(buffer[:])
			said += string(buffer[:n])
		}
		if at := "/" + name + "/t.1-" + token + "\n"; strings.Count(said, at) < len(group.dirs()) {
			t.Errorf("%q, %v, want it in %q", said, err, at)
		}
		return group, command
	}
	live, running := make("abcdefghij-" + self().String())
	dead, left := make("abcdefghij-" + ended(t).String())
	groups.Sweep()
	if err := left.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("what runs in a group whose maker has ended: %v", err)
	}
	for _, dir := range dead.dirs() {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	live.Kill()
	if err := running.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("killed with its group: %v", err)
	}
	if err := live.Remove(); err != nil {
		t.Error(err)
	}
}
