package sandboxtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// makerEnv tells the process that is to be killed where and for whom to make boxes.
const makerEnv = "HEADWAY_SANDBOXTEST_MAKER"

// made is what that process prints once a box is there, before its name; and when all are.
const made, allMade = "sandboxtest made ", "sandboxtest made all"

// makeAndWait makes boxes in a process that was started for that, runs a command without end in
// one of them, and waits to be killed.
func makeAndWait(t *testing.T, subject Subject) {
	dir, owner, is := strings.Cut(os.Getenv(makerEnv), "|")
	if !is {
		return
	}
	driver := subject.New(t, dir)
	s := &suite{Subject: subject, driver: driver, owner: owner}
	for i := range 3 {
		id := sandbox.ID(fmt.Sprintf("%s.killed%d", owner, i))
		box, err := driver.Create(bounded(t), id, s.spec())
		if err != nil {
			fmt.Println("create:", err)
			os.Exit(1)
		}
		fmt.Println(made + string(id))
		if i == 2 {
			if err := box.Write(bounded(t), sandbox.Work+"/kept", []byte(id), 0o600); err != nil {
				fmt.Println("write:", err)
				os.Exit(1)
			}
			continue
		}
		go box.Run(bounded(t), shell("echo $$ > running; setsid sh -c 'while :; do sleep 1; done # "+owner+"' & while :; do sleep 1; done # "+owner))
	}
	fmt.Println(allMade)
	<-t.Context().Done()
}

// testMakerKilled: what a process leaves that is killed is found by its owner's name and ends with
// Destroy, so that neither a process nor a file stays.
func testMakerKilled(t *testing.T, s *suite) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := s.owner + "k"
	name, _, _ := strings.Cut(t.Name(), "/")
	maker := exec.CommandContext(bounded(t), program, "-test.run=^"+name+"$", "-test.v", "-test.timeout=10m")
	maker.Env = append(os.Environ(), makerEnv+"="+s.dir+"|"+owner)
	maker.Env = append(maker.Env, s.Env...)
	maker.Stderr = os.Stderr
	said, err := maker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	defer s.destroyAll(t, owner)
	var ids []sandbox.ID
	all := false
	for lines := bufio.NewScanner(said); !all && lines.Scan(); {
		all = strings.HasSuffix(lines.Text(), allMade)
		if _, id, is := strings.Cut(lines.Text(), made); is && !all {
			ids = append(ids, sandbox.ID(id))
		}
	}
	if err := maker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = maker.Wait() // it was killed
	if !all || len(ids) != 3 {
		t.Fatalf("the process made %q, want 3 boxes", ids)
	}
	s.attach(t, ids[2])
	left := s.list(t, owner)
	t.Logf("after the kill there is %q of %q", left, ids)
	for _, id := range ids {
		if err := s.driver.Destroy(bounded(t), id); err != nil {
			t.Errorf("destroy %s: %v", id, err)
		}
	}
	if left := s.list(t, owner); len(left) != 0 {
		t.Errorf("after all were destroyed there is %q", left)
	}
	if s.Remote {
		return
	}
	if running := processesOf(t, owner); len(running) != 0 {
		t.Errorf("processes of destroyed boxes still run:\n%s", strings.Join(running, "\n"))
	}
	_ = filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(path, owner) {
			t.Errorf("%s is left of destroyed boxes", path)
		}
		return nil
	})
}

// attach uses a box on whose maker is gone, where the driver can.
func (s *suite) attach(t *testing.T, id sandbox.ID) {
	attacher, can := s.driver.(sandbox.Attacher)
	if !can {
		return
	}
	box, err := attacher.Attach(bounded(t), id, s.spec())
	if err != nil {
		t.Errorf("attach: %v", err)
		return
	}
	if got, err := box.Read(bounded(t), sandbox.Work+"/kept", 100); err != nil || string(got) != string(id) {
		t.Errorf("its file is %q, %v", got, err)
	}
	works(t, box)
	_, err = attacher.Attach(bounded(t), id+"-no", s.spec())
	wantClass(t, "attach to what is not there", err, sandbox.Lost)
}

// processesOf are those of this host whose arguments have a word in them, waiting for none: a
// driver has ended what it ended when it says so.
func processesOf(t *testing.T, word string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var running []string
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), word) {
			running = append(running, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return running
}
