package watchdog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
)

// lateS is how long a weight sync may wait for an engine that the others have left behind before it is named.
const lateS = 15

// firstSyncS is how long a sync usually takes where there was none before to measure by.
const firstSyncS = 30

// lateNamed bounds how many engines a sentence names.
const lateNamed = 4

// phases orders what engines go through in a sync. One that serves its version has all of them behind it.
var phases = map[string]int{"loading": 1, "loaded": 2, "emptying": 3, "switching": 4}

const phaseDone = 5

// heldBy is what an engine does, in words, in each phase that can take too long.
var heldBy = map[string]string{"loading": "has been loading", "emptying": "has waited for its rollouts to end before", "switching": "has been switching to"}

// Held names the engines that a weight sync waits for. They still do what others have done a while ago, or
// take longer than the last sync took. Nil for none. The run may go on meanwhile, with older weights than it
// could have. The view is the one that Look was given last.
func (d *Watchdog) Held(v View) *protocol.Finding {
	if v.SyncTarget < 0 || v.Status.State != "running" {
		return nil
	}
	var names, clauses []string
	var first protocol.Engine
	for i, e := range v.Status.Engines {
		if d.lateBy(v, i) < lateS {
			continue
		}
		if names = append(names, e.Name); len(names) == 1 {
			first = e
		}
		if len(names) <= lateNamed {
			clauses = append(clauses, fmt.Sprintf("engine %s %s version %d for %s%s", e.Name, heldBy[e.State], v.SyncTarget, ago(v.NowS-d.engines[e.Name].sinceS), untilText(e)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	if more := len(names) - lateNamed; more > 0 {
		clauses = append(clauses, fmt.Sprintf("and %d more like them", more))
	}
	return &protocol.Finding{Code: "engine_paused", Subject: strings.Join(names, ", "),
		Message: strings.Join(clauses, "; ") + ". " + waitsText(v, first.State) + ". " + lateHint(first)}
}

// lateBy is how long a sync has waited for an engine beyond what others took, or the last sync did; 0 for one
// that it does not wait for. One that finds no sender is not late: that is said by itself.
func (d *Watchdog) lateBy(v View, i int) float64 {
	e := v.Status.Engines[i]
	if s := v.Status.Sender; heldBy[e.State] == "" || s != nil && slices.Contains(s.Waiting, e.Name) {
		return 0
	}
	since, ahead := d.engines[e.Name].sinceS, false
	for _, other := range v.Status.Engines {
		if phaseOf(v, other) > phases[e.State] {
			ahead, since = true, max(since, d.engines[other.Name].sinceS)
		}
	}
	if !ahead {
		since += usualS(v.Status.Sync, e.State)
	}
	return v.NowS - since
}

// usualS is how long a sync is in a state, by the last one; nil for none.
func usualS(last *protocol.Sync, state string) float64 {
	switch {
	case last == nil:
		return firstSyncS
	case state == "emptying":
		return last.WaitS
	default:
		return max(last.LoadS, last.SwitchS)
	}
}

// phaseOf is how far an engine is in the sync, 0 for one that takes no part.
func phaseOf(v View, e protocol.Engine) int {
	if e.State == "serving" && e.Version >= v.SyncTarget {
		return phaseDone
	}
	return phases[e.State]
}

// waitsText say what waits for an engine in a state.
func waitsText(v View, state string) string {
	if v.Together && state != "switching" && len(v.Status.Engines) > 1 {
		return "No engine switches before all are ready for it (sync.switch: fleet)"
	}
	return "No engine is given a newer version before that has ended"
}

// untilText say when what an engine does is given up, where anything bounds it.
func untilText(e protocol.Engine) string {
	if e.Server == nil || e.Server.LeftS <= 0 {
		return ""
	}
	return fmt.Sprintf(", which is given up in %s (engines.*.update_s)", ago(e.Server.LeftS))
}

func lateHint(e protocol.Engine) string {
	if e.Server == nil || e.State == "emptying" {
		return pausedHint(e.State)
	}
	return "Look at the log of its server, at " + e.Server.URL
}
