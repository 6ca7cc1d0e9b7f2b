package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// The reports have all attacks that there are now, each with an outcome.
func TestReportsAreComplete(t *testing.T) {
	reports, err := ReadReports("results")
	if err != nil {
		t.Fatal(err)
	}
	all := attacks(nowhere())
	for _, report := range reports {
		if len(report.Rows) != len(all) {
			t.Errorf("%s has %d attacks, there are %d: record it again as docs/reference/attacks.md says", report.Driver, len(report.Rows), len(all))
			continue
		}
		for i, row := range report.Rows {
			if row.Attack != all[i].name || row.Tries != all[i].tries {
				t.Errorf("%s was recorded with %q, now there is %q: record it again as docs/reference/attacks.md says", report.Driver, row.Attack, all[i].name)
			}
		}
	}
}

// Where nothing holds them, attacks succeed and are judged so. Those that would harm the host that
// the tests run on are left out.
func TestAttacksCanSucceed(t *testing.T) {
	h := newHost(t)
	remove, err := h.placeShared()
	defer remove()
	if err != nil {
		t.Logf("the host has no shared memory: %v", err)
	}
	program := filepath.Join(h.arms, armName)
	for name, args := range map[string][]string{
		"connect": h.addresses, "chroot": h.files, "keys": nil, "shared": nil,
	} {
		attack := exec.CommandContext(bounded(t), program, append([]string{name}, args...)...)
		said, err := attack.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, said)
			continue
		}
		how, err := (&isolation{host: h}).judged(sandbox.Result{Stdout: said}, nil)
		if err == nil && (name == "connect" || name == "chroot" || os.Geteuid() == 0 && name == "shared") {
			t.Errorf("%s was judged contained on the bare host: %s", name, how)
		}
		t.Logf("%s: %s %v", name, how, err)
	}
	if h.touched.Load() == 0 {
		t.Error("the listeners noted nobody")
	}
	if err := h.alive(); err == nil {
		t.Error("the host that was reached is said to be as it was")
	}
}
