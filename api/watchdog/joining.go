package watchdog

import (
	"fmt"

	"github.com/headway-rl/headway/api/protocol"
)

// joining looks for groups of engines with the sender that do not come to be. The one that is waited for
// longest stands for all.
func joining(f facts, _ Options) []suspect {
	s := f.Status.Sender
	if s == nil {
		return nil
	}
	var first protocol.SenderJoining
	late := 0
	for _, j := range s.Joining {
		if !j.Late {
			continue
		}
		if late++; j.ForS > first.ForS {
			first = j
		}
	}
	if late == 0 {
		return nil
	}
	likely := 74
	if late >= len(f.Status.Engines) {
		likely = 96
	}
	why := fmt.Sprintf("it was to reach the sender at %s, the address that the sender gave, and has not for %s. See whether that is the right address (host= of the Sender), and that no firewall keeps the engine from it", first.Address, ago(first.ForS))
	if first.Address == "" {
		why = fmt.Sprintf("sender %s was told %s ago to meet it, and has not come. Look at the log of its process", s.Name, ago(first.ForS))
	}
	return []suspect{found(likely, "not_joined", first.Engine, "%d of %d engines have not joined a group with the sender, by which they take their weights. Engine %s: %s", late, len(f.Status.Engines), first.Engine, why)}
}
