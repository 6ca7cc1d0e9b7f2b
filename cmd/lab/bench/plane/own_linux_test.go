package plane

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// owner is set where the test's own program plays an experiment that is killed.
const owner = "HEADWAY_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(owner) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sleep", "3600")
	cmd.Stdout = os.Stdout
	Own(cmd)
	fmt.Println(cmd.Start())
	for { // select would end the program as a deadlock, without cgo
		_ = syscall.Pause()
	}
}

// What an experiment has started ends with it, even where it is killed.
func TestOwn(t *testing.T) {
	experiment := exec.Command(os.Args[0])
	experiment.Env = append(os.Environ(), owner+"=yes")
	said, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	experiment.Stdout = write
	if err := experiment.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	lines := bufio.NewReader(said)
	if line, err := lines.ReadString('\n'); line != "<nil>\n" {
		t.Errorf("it says %q: %v", line, err)
	}
	_ = experiment.Process.Kill()
	_ = experiment.Wait()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 { // ends when no process has the pipe
		t.Errorf("%q, %v", rest, err)
	}
}
