package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/headway-rl/headway/app"
)

// waiting ends by a signal alone.
type waiting struct{}

func (waiting) Run(p *app.Process) error {
	ctx, stop := Interruptible()
	defer stop()
	fmt.Fprintln(p.Stdout, "waits")
	<-ctx.Done()
	fmt.Fprintln(p.Stdout, "ended in order")
	return nil
}

// A command that is tied to its standard input ends in order when that does, and passes the variable on to nobody.
func TestUntilEOF(t *testing.T) {
	if os.Getenv("HEADWAY_TEST_WAITS") != "" {
		program := Program{Name: "try", Grammar: func() any {
			return &struct {
				Wait  waiting `cmd:""`
				Other waiting `cmd:""`
			}{}
		}}
		code := program.Main([]string{"wait"}, os.Stdin, os.Stdout, os.Stderr)
		if os.Getenv(UntilEOF) != "" {
			code = 9
		}
		os.Exit(code)
	}
	self := exec.Command(os.Args[0], "-test.run=^TestUntilEOF$")
	self.Env = append(os.Environ(), "HEADWAY_TEST_WAITS=1", UntilEOF+"=1")
	stdin, err := self.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := self.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stdout)
	if line, err := said.ReadString('\n'); line != "waits\n" {
		t.Errorf("it said %q, %v", line, err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(said)
	if err = errors.Join(err, self.Wait()); err != nil || string(rest) != "ended in order\n" {
		t.Errorf("%v, %q", err, rest)
	}
}
