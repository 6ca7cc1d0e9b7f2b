package runsc

import (
	"os"
	"strings"
	"testing"
)

// What `make sandboxes` builds is what is looked for, and what the messages say.
func TestMakefileBuildsThisVersion(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
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

func TestProgramMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if _, err := program(""); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@"+Version) {
		t.Errorf("the error does not say how to get it: %v", err)
	}
}
