package sink

import (
	"context"
	"os"
	"time"

	"github.com/headway-rl/headway/internal/tfevents"
)

// tensorBoard writes scalars into an event file.
type tensorBoard struct {
	directory string
	writer    *tfevents.Writer
	scalars   []tfevents.Scalar
	// first and done are the batch that is being written: its first step, and how many of its steps are there.
	first int64
	done  int
}

// TensorBoard is a sink into an event file of a log directory, which TensorBoard takes for one run. The
// directory is made now, so that one that cannot be is an error before the run begins.
func TensorBoard(directory string, now time.Time) (Sink, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, errorOf("tensorboard", err)
	}
	writer, err := tfevents.Create(directory, "headway", now)
	if err != nil {
		return nil, errorOf("tensorboard", err)
	}
	return &tensorBoard{directory: directory, writer: writer}, nil
}

func (t *tensorBoard) Name() string { return "tensorboard" }

func (t *tensorBoard) Write(_ context.Context, steps []Step) error {
	if len(steps) == 0 || steps[0].Step != t.first { // else those that failed are given again
		t.done = 0
	}
	for _, s := range steps[min(t.done, len(steps)):] {
		t.first = steps[0].Step
		t.scalars = t.scalars[:0]
		for _, f := range s.Figures {
			t.scalars = append(t.scalars, tfevents.Scalar{Tag: f.Name, Value: f.Value})
		}
		if err := t.writer.Write(s.Time, s.Step, t.scalars); err != nil {
			return errorOf(t.directory, err)
		}
		t.done++
	}
	t.done = 0
	return nil
}

func (t *tensorBoard) Close(context.Context, bool) error { return t.writer.Close() }
