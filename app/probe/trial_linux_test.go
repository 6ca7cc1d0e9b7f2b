package probe

import (
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/sandbox"
	"strings"
	"testing"
)

// A box that is lost while doctor tries it is an error of the sandbox, and never a pass.
func TestTrialOfAProgramThatFails(t *testing.T) {
	cfg, err := config.Load("")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sandbox = config.Sandbox{Driver: "process", StartTimeoutS: 30}
	driver, err := parts.DriverOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	box, err := trialBox(t.Context(), cfg, driver, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := runOne(t.Context(), box, "false"); err == nil || !strings.Contains(err.Error(), "exit code 1") {
		t.Errorf("false: %v", err)
	}
	if err := box.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := runTrue(t.Context(), box); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("in a box that is closed: %v", err)
	}
}
