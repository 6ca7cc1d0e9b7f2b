package bwrap

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox/sandboxtest"
)

func TestIsolation(t *testing.T) {
	versions := map[string]string{}
	if said, err := exec.Command("bwrap", "--version").Output(); err == nil {
		versions["bubblewrap"] = strings.TrimSpace(strings.TrimPrefix(string(said), "bubblewrap"))
	}
	sandboxtest.Isolation(t, subject(), versions)
}
