package sandboxtest

import (
	"os"
	"os/exec"
	"testing"
)

// The reports have all attacks that there are now, each with an outcome.
func TestReportsAreComplete(t *testing.T) {
	reports, err := ReadReports("results")
	if err != nil {
		t.Fatal(err)
	}
	nobody := &isolation{&suite{}, &host{files: []string{"/none"}, victim: &exec.Cmd{Process: &os.Process{Pid: 1}}}}
	all := attacks(nobody)
	for _, report := range reports {
		if len(report.Rows) != len(all) {
			t.Errorf("%s has %d attacks, there are %d: record it again as docs/sandboxes.md says", report.Driver, len(report.Rows), len(all))
			continue
		}
		for i, row := range report.Rows {
			if row.Attack != all[i].name || row.Tries != all[i].tries {
				t.Errorf("%s was recorded with %q, now there is %q: record it again as docs/sandboxes.md says", report.Driver, row.Attack, all[i].name)
			}
		}
	}
}
