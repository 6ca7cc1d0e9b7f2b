package chaos

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
	"time"
)

var (
	ledgerFile = flag.String("chaos.ledger", "", "a file of JSON lines: each judged run appends its kills, and a test kills no process oftener than is still missing there")
	until      = flag.Int("chaos.until", 200, "how many kills of each process the ledger is to hold")
)

// judged is one line of the ledger: a run that was killed, and the verdict.
type judged struct {
	Test   string         `json:"test"`
	When   string         `json:"when"`
	Seed   uint64         `json:"seed"`
	Killed map[string]int `json:"killed"`
	Frozen int            `json:"frozen,omitempty"`
	Hit    map[string]int `json:"hit,omitempty"` // states of the loop, by how many kills met them
	Sound  bool           `json:"sound"`
	// Audit is what audit.py printed.
	Audit json.RawMessage `json:"audit"`
}

// readLedger returns the lines of a file that may be missing.
func readLedger(t *testing.T, path string) (lines []judged) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var one judged
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%s: %v in %s", path, err, line)
		}
		lines = append(lines, one)
	}
	return lines
}

// sumKills adds up the kills of one test, by kind of process.
func sumKills(lines []judged, test string) map[string]int {
	sum := map[string]int{}
	for _, line := range lines {
		if line.Test == test {
			for kind, n := range line.Killed {
				sum[kind] += n
			}
		}
	}
	return sum
}

// left is how often each kind of process is to be killed in this run.
func (j *job) left() map[string]int {
	sum := map[string]int{}
	if *ledgerFile != "" {
		sum = sumKills(readLedger(j.t, *ledgerFile), j.t.Name())
	}
	left := map[string]int{}
	for _, p := range j.victims {
		left[p.kind()] = *kills
		if *ledgerFile != "" {
			left[p.kind()] = max(min(*kills, *until-sum[p.kind()]), 0)
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(left)), func(n int) bool { return n > 0 }) {
		j.t.Skipf("%s holds %d kills of each process already", *ledgerFile, *until)
	}
	return left
}

func (j *job) total() (n int) {
	for _, of := range j.killed {
		n += of
	}
	return n
}

// write appends the run to the ledger and says what it holds by now.
func (j *job) write(audit []byte) {
	if *ledgerFile == "" {
		return
	}
	line, err := json.Marshal(judged{Test: j.t.Name(), When: time.Now().UTC().Format(time.RFC3339), Seed: j.seed,
		Killed: j.killed, Frozen: j.frozen, Hit: j.histogram, Sound: !j.t.Failed(), Audit: bytes.TrimSpace(audit)})
	if err != nil {
		j.t.Fatal(err)
	}
	file, err := os.OpenFile(*ledgerFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		j.t.Error(err)
	}
	if err := file.Close(); err != nil {
		j.t.Error(err)
	}
	lines := readLedger(j.t, *ledgerFile)
	unsound := slices.IndexFunc(lines, func(l judged) bool { return !l.Sound })
	j.t.Logf("%s holds for this test, of %d kills of each process: %v", *ledgerFile, *until, sumKills(lines, j.t.Name()))
	if unsound >= 0 {
		j.t.Errorf("line %d of %s is of an unsound run", unsound+1, *ledgerFile)
	}
}
