package parts

import (
	"testing"

	"github.com/headway-rl/headway/config"
)

// Cells of several runs at one cluster may have one name, and not one owner. A standby elsewhere has the owner of its run.
func TestSandboxOwners(t *testing.T) {
	var cfg config.Config
	cfg.Store.NATS.URL = "nats://nats:4222"
	owners := map[string]string{}
	for _, dir := range []string{"/runs/first", "/runs/second", CellDir("/runs/first", "b"), CellDir("/runs/second", "b"), CellDir("/runs/first", "c")} {
		owner := SandboxOwner(cfg, dir)
		if other := owners[owner]; other != "" {
			t.Errorf("%s and %s have one owner", dir, other)
		}
		owners[owner] = dir
	}
	if SandboxOwner(cfg, "/elsewhere/first") != SandboxOwner(cfg, "/runs/first") || SandboxOwner(cfg, CellDir("/elsewhere/first", "b")) != SandboxOwner(cfg, CellDir("/runs/first", "b")) {
		t.Error("a run has another owner in another place")
	}
}
