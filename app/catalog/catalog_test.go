package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/loop/trace"
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

// The writer of a run whose log is in a NATS cluster holds no lock in its directory: the run stays until it has ended.
func TestRunsOfACluster(t *testing.T) {
	for name, k := range map[string]struct{ address, log, state string }{
		"without a trace":     {`{"url":"http://plane:7070","run":"r"}`, "", Unknown},
		"a trace without end": {`{"url":"http://plane:7070","run":"r"}`, "{}\n", Unknown},
		"stopped in order":    {`{"url":"http://plane:7070","run":"r"}`, `{"note":"end","data":{"reason":"stopped"}}` + "\n", Stopped},
		"finished, no trace":  {`{"url":"http://plane:7070","run":"r","finished":5}`, "", Complete},
		"finished, its trace": {`{"url":"http://plane:7070","run":"r","finished":5}`, `{"note":"end","data":{"reason":"steps"}}` + "\n", Complete},
	} {
		folder := t.TempDir()
		dir := filepath.Join(folder, "r")
		err := os.Mkdir(dir, 0o755)
		files := map[string]string{parts.ConfigFile: "trainer: {steps: 5}\nstore: {nats: {url: \"nats://nats:4222\"}}\n", origin.AddressFile: k.address}
		if k.log != "" {
			files[trace.PlainName] = k.log
		}
		for file, text := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		runs, err := List(folder, time.Now())
		if err != nil || len(runs) != 1 || runs[0].State != k.state {
			t.Errorf("%s: %+v, %v, want %s", name, runs, err, k.state)
			continue
		}
		ended := k.state != Unknown
		if old := Old(runs, 0, 0); (len(old) == 1) != ended {
			t.Errorf("%s: %d may go", name, len(old))
		}
		if err := Remove(dir); (err == nil) != ended {
			t.Errorf("%s: removing it: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, origin.AddressFile)); (err == nil) == ended {
			t.Errorf("%s: after a removal: %v", name, err)
		}
	}
}
