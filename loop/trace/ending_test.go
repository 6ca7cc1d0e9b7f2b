package trace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop/trace"
)

// The end of a trace says why its run ended, packed or plain. A trace that is cut says nothing, wherever it is cut.
func TestEnding(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.FileName)
	log := openLog(t, path)
	enc := &trace.Encoder{}
	appends(t, log, enc, 500)
	if reason, err := trace.Ending(path); reason != "" || err != nil {
		t.Errorf("a trace that goes on ended by %q, %v", reason, err)
	}
	end := []byte(`{"n":500,"note":"end","data":{"reason":"steps"},"crc":"00000000"}` + "\n")
	if err := log.Append(end, false); err != nil {
		t.Fatal(err)
	}
	if err := log.Finish(); err != nil {
		t.Fatal(err)
	}
	if reason, err := trace.Ending(path); reason != "steps" || err != nil {
		t.Errorf("a trace ended by %q, %v", reason, err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, len(whole) / 2, len(whole) - 20} {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if reason, err := trace.Ending(path); reason != "" || err != nil {
			t.Errorf("a trace of %d of %d bytes ended by %q, %v", cut, len(whole), reason, err)
		}
	}
	plain := filepath.Join(t.TempDir(), trace.PlainName)
	if err := os.WriteFile(plain, append([]byte("{}\n"), end...), 0o600); err != nil {
		t.Fatal(err)
	}
	if reason, err := trace.Ending(plain); reason != "steps" || err != nil {
		t.Errorf("a plain trace ended by %q, %v", reason, err)
	}
	if _, err := trace.Ending(plain + ".gone"); err == nil {
		t.Error("a trace that is not there is no error")
	}
}
