package verifier

import (
	"strings"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// An expression that runs on is ended by its own processor time, of which a busy machine takes nothing.
func TestStarlarkProcessorTime(t *testing.T) {
	v, err := newStarlark(Options{Expression: `[x for x in range(1000000000) if x < 0] == None`, Steps: 1 << 40, TimeoutS: 0.1, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_, err = v.Verify(t.Context(), Case{})
	if _, again := retryAfter(err); again || sandbox.ClassOf(err) != sandbox.VerifierCrash || !strings.Contains(err.Error(), "0.05 s of processor time") {
		t.Errorf("%v", err)
	}
}

// A process that somebody else ended is no fault of the response: the case is asked again, of a new one.
func TestStarlarkProcessIsReplaced(t *testing.T) {
	v, err := newStarlark(Options{Expression: `True`, Range: [2]float64{0, 1}, TimeoutS: 10, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ask := func() error {
		_, err := v.Verify(t.Context(), Case{})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	if err := v.(*scripts).seats[0].process.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = ask()
	if _, again := retryAfter(err); !again || v.(*scripts).trust.count != 1 {
		t.Errorf("%v, of %d cases", err, v.(*scripts).trust.count)
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
}
