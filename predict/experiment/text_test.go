package experiment

import (
	"testing"

	"github.com/headway-rl/headway/loop"
)

// Without a warm-up nothing is said of one.
func TestLedgerWithoutAWarmup(t *testing.T) {
	if got := (&Simulation{Ledger: loop.Ledger{Admitted: 3, Trained: 3}}).ledgerLine(); got != "3 rollouts: 3 trained" {
		t.Errorf("without a warm-up: %q", got)
	}
}
