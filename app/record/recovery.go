package record

import (
	"fmt"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/observe/report"
	"slices"
)

// RecoveryLines say where a run was recovered from, and what could not be used for it.
func RecoveryLines(r *live.Resume) []string {
	lines := slices.Clone(r.PassedOver)
	for i := range lines {
		lines[i] = "passed over " + lines[i]
	}
	from := "the beginning of its log"
	if r.SnapshotLine > 0 {
		from = fmt.Sprintf("the snapshot at event %d", r.SnapshotEvent)
	}
	return append(lines, fmt.Sprintf("recovered from %s, replayed %s in %.2f s", from, report.Counted(r.Events, "event"), r.Seconds))
}
