package command

import (
	"errors"
	"fmt"
	"testing"

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
