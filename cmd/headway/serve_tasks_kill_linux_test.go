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

// TestServeTasksKilled kills a control plane with every sandbox in use: the next one leaves none of them,
// and accounts for every rollout.
func TestServeTasksKilled(t *testing.T) {
	for _, name := range []string{"process", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			const steps = 2
			open := openSandboxes()
			driver, dir, file, model := sandboxDriver(t, name), t.TempDir(), taskFile(t), scriptedModel(t)
			var killed atomic.Bool
			answer := reader()
			url := scriptedServer(t, func(r *http.Request, chat string) string {
				if !killed.Load() {
					return toolCallText("shell", `{"command": "sleep 3000"}`)
				}
				return answer(r, chat)
			})
			document := strings.Replace(fmt.Sprintf(stageDocument, model, url, file, sandboxOf(name), "", steps), "time_s: 30", "time_s: 3600", 1)
			document = strings.NewReplacer("slots: 8", fmt.Sprint("slots: ", open), "batch: 8", fmt.Sprint("batch: ", open)).Replace(document)
			s := startServe(t, dir, document)
			for e := s.status().Environment; e == nil || e.Sandboxes == nil || e.Sandboxes.Leased < open; e = s.status().Environment {
				if t.Context().Err() != nil || t.Failed() {
					t.Fatalf("the sandboxes are %+v\n%s", e, s.text())
				}
			}
			if there := sandboxesLeft(t, driver, dir); len(there) < open {
				t.Fatalf("%d sandboxes are open, want %d", len(there), open)
			}
			s.kill()
			killed.Store(true)

			s = startServe(t, dir, document, "--json")
			checkPlayedBatches(t, s.train(steps))
			status := s.final()
			if !strings.Contains(s.text(), fmt.Sprintf("removed %d sandboxes of an earlier process", open)) || status.Environment.Sandboxes.Orphans != int64(open) {
				t.Errorf("%d orphans were removed, want %d\n%s", status.Environment.Sandboxes.Orphans, open, s.text())
			}
			if !status.Ledger.Balanced || status.Ledger.Trained != int64(open*steps) || status.Recovery == nil {
				t.Errorf("the ledger is %+v after the recovery %+v", status.Ledger, status.Recovery)
			}
			if left := sandboxesLeft(t, driver, dir); len(left) > 0 {
				t.Errorf("a run that was killed and has ended left the sandboxes %v", left)
			}
			checkPlayedAttempts(t, playedRecords(t, dir))
		})
	}
}

// checkPlayedAttempts holds that no attempt has ended twice.
func checkPlayedAttempts(t *testing.T, records []episode.Record) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range records {
		if seen[r.Rollout] {
			t.Errorf("%s has ended twice", r.Rollout)
		}
		seen[r.Rollout] = true
	}
}
