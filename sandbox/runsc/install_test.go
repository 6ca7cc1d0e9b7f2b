package runsc

import (
	"os"
	"strings"
	"testing"
)

// What `make sandboxes` builds is what is looked for, and what the messages say.
func TestMakefileBuildsThisVersion(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"RUNSC_VERSION := " + Version + "\n", "RUNSC_SUM := " + Sum + "\n",
		"RUNSC := $(HOME)/.cache/headway/runsc-$(RUNSC_VERSION)/runsc\n",
		"CGO_ENABLED=0 $(GO) install gvisor.dev/gvisor/runsc@$(RUNSC_VERSION)\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Makefile lacks %q", want)
		}
	}
}

func TestNameInNotes(t *testing.T) {
	for name, want := range map[string]bool{
		"x.1_sandbox:x.1.state": true, "x.1.lock": true, "runsc-x.1.sock": true, "x.1": true,
		"x.10_sandbox:x.10.state": false, "ax.1.lock": false, "x.12": false, "null-netns": false, "x.1.2_sandbox:x.1.2.state": false,
	} {
		if of(name, "x.1") != want {
			t.Errorf("%s is of x.1: %t, want %t", name, !want, want)
		}
	}
}

func TestProgramMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if _, err := program(""); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@"+Version) {
		t.Errorf("the error does not say how to get it: %v", err)
	}
}
