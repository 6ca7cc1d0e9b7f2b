package catalog

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
)

// A control plane's run without a trace is listed as any other. A document alone makes no run.
func TestRunsWithoutATrace(t *testing.T) {
	for name, k := range map[string]struct{ address, state string }{
		"finished":   {`{"url":"http://127.0.0.1:7070","run":"r","finished":5}`, Complete},
		"stopped":    {`{"url":"http://127.0.0.1:7070","run":"r"}`, Stopped},
		"a document": {"", ""},
	} {
		folder := t.TempDir()
		dir := filepath.Join(folder, "r")
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, parts.ConfigFile), []byte("trainer: {steps: 5}\n"), 0o644)
		}
		if err == nil && k.address != "" {
			err = os.WriteFile(filepath.Join(dir, origin.AddressFile), []byte(k.address), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		runs, err := List(folder, time.Now())
		if err != nil || len(runs) > 1 || (len(runs) == 1) != (k.state != "") {
			t.Errorf("%s: %+v, %v", name, runs, err)
			continue
		}
		if k.state != "" && (runs[0].State != k.state || runs[0].Command != "serve" || runs[0].Changed.IsZero()) {
			t.Errorf("%s: %+v", name, runs[0])
		}
	}
}
