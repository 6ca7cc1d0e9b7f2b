package command

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// The end of its terminal ends a command, but not one that nohup has started: that ignores the signal, and goes on to.
func TestACommandUnderNohupOutlivesItsTerminal(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // nohup may have started the test
	defer signal.Stop(heard)
	if !slices.Contains(EndSignals(), os.Signal(syscall.SIGHUP)) {
		t.Error("the end of the terminal ends nothing")
	}
	signal.Ignore(syscall.SIGHUP) // as nohup does
	defer signal.Reset(syscall.SIGHUP)
	_, stop := Interruptible()
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("the end of the terminal ends a command that nohup has started")
	}
}
