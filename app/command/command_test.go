package command

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"

	"github.com/headway-rl/headway/internal/failure"
)

type blame struct{}

func (blame) Error() string { return "line 3: no such key" }
func (blame) UsageFault()   {}

func TestExitCodes(t *testing.T) {
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("the engine went away"), 1},
		{failure.Run("", "the trace differs"), 1},
		{failure.Usage("", "no such file"), 2},
		{fmt.Errorf("run.yaml: %w", blame{}), 2},
		{fmt.Errorf("reading: %w", failure.Usage("", "no such file")), 2},
		{failure.Run("", "replaying: %w", blame{}), 1},
	}
	for _, test := range tests {
		if got := ExitCode(test.err); got != test.want {
			t.Errorf("ExitCode(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

// heard passes what is written on, once.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
	any  chan struct{}
	once sync.Once
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.once.Do(func() { close(h.any) })
	return h.text.Write(p)
}

// Something long without a measure says that it goes on, and nothing after it has ended.
func TestWorking(t *testing.T) {
	stderr := &heard{any: make(chan struct{})}
	stop := Working(&app.Process{Stderr: stderr, Now: time.Now, Getenv: func(string) string { return "" }, IsTerminal: func(any) bool { return false }}, "simulating")
	<-stderr.any
	stop()
	stop()
	if said := stderr.text.String(); !strings.HasPrefix(said, "simulating, ") || strings.Count(said, "\n") != 1 {
		t.Errorf("it says %q", said)
	}
}

// A negative number belongs to the flag before it, so that the command says what is wrong with it.
func TestNegativeNumbersAreValues(t *testing.T) {
	for given, want := range map[string]string{
		"plan --budget -1 --json": "plan --budget=-1 --json",
		"plan --gpus=4 -1":        "plan --gpus=4 -1",
		"run -- -1":               "run -- -1",
		"top -w":                  "top -w",
	} {
		if got := strings.Join(joined(strings.Fields(given)), " "); got != want {
			t.Errorf("%s becomes %s, want %s", given, got, want)
		}
	}
}
