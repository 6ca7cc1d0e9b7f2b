package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/env/episode"
)

// openSandboxes is how many sandboxes are open when the control plane is killed: 8, and 100 where
// HEADWAY_LONG is set.
func openSandboxes() int {
	if os.Getenv("HEADWAY_LONG") != "" {
		return 100
	}
	return 8
}

// TestServeTasksKilled kills a control plane with every sandbox in use, in the middle of a turn. The next one leaves none of
// them. Its players go on from the turns before, in sandboxes of their own: nothing that was sampled is sampled again.
func TestServeTasksKilled(t *testing.T) {
	for _, name := range []string{"process", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			const steps = 2
			open := openSandboxes()
			driver, dir, file, model := sandboxDriver(t, name), t.TempDir(), taskFile(t), scriptedModel(t)
			var killed atomic.Bool
			var begun, held atomic.Int64
			answer := reader()
			url := scriptedServer(t, func(r *http.Request, chat string) string {
				switch turns := strings.Count(chat, toolTurn); {
				case turns == 0:
					begun.Add(1)
					return toolCallText("shell", `{"command": "sleep 3000 >/dev/null 2>&1 & echo begun in 0.$$ s"}`)
				case turns == 1 && !killed.Load():
					held.Add(1)
					<-r.Context().Done()
					return ""
				case turns == 1:
					return toolCallText("shell", `{"command": "cat n.txt"}`)
				}
				return answer(r, chat)
			})
			document := fmt.Sprintf(stageDocument, model, url, file, sandboxOf(name), "", steps)
			document = strings.NewReplacer("slots: 8", fmt.Sprint("slots: ", open), "batch: 8", fmt.Sprint("batch: ", open)).Replace(document)
			s := startServe(t, dir, document)
			for held.Load() < int64(open) {
				if s.status(); t.Context().Err() != nil || t.Failed() {
					t.Fatalf("%d rollouts are in their second turn\n%s", held.Load(), s.text())
				}
			}
			if there := sandboxesLeft(t, driver, dir); len(there) < open {
				t.Fatalf("%d sandboxes are open, want %d", len(there), open)
			}
			s.kill()
			killed.Store(true)

			s = startServe(t, dir, document, "--json")
			s.says(fmt.Sprintf("%d of %d rollouts that were under way go on from their turns", open, open))
			checkPlayedBatches(t, s.train(steps))
			status := s.final()
			if !strings.Contains(s.text(), fmt.Sprintf("removed %d sandboxes of an earlier process", open)) || status.Environment.Sandboxes.Orphans != int64(open) {
				t.Errorf("%d orphans were removed, want %d\n%s", status.Environment.Sandboxes.Orphans, open, s.text())
			}
			if status.Recovery == nil {
				t.Error("nothing was recovered")
			}
			trainedAll(t, &status, int64(open*steps))
			if left := sandboxesLeft(t, driver, dir); len(left) > 0 {
				t.Errorf("a run that was killed and has ended left the sandboxes %v", left)
			}
			checkPlayedAttempts(t, playedRecords(t, dir), begun.Load())
		})
	}
}

// checkPlayedAttempts holds that each attempt was begun once, is the first of its rollout, and has ended no more than once.
func checkPlayedAttempts(t *testing.T, records []episode.Record, begun int64) {
	t.Helper()
	seen, said := map[string]bool{}, int64(0)
	for _, r := range records {
		if r.Turns > 0 { // the others were given up with the run, before they had a message
			said++
		}
		if seen[r.Rollout] || !strings.HasSuffix(r.Rollout, "-a1") {
			t.Errorf("%s has ended twice, or is no first attempt", r.Rollout)
		}
		seen[r.Rollout] = true
	}
	if begun < said || begun > int64(len(records)+openSandboxes()) { // the last may be cut off before they are recorded
		t.Errorf("the first turn was sampled %d times, and %d rollouts have ended, %d of them with a message", begun, len(records), said)
	}
}
