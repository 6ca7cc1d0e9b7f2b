package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/predict/experiment"
)

// Diagnose diagnoses a run of ours by its directory or its trace. quick asks closed forms alone.
func Diagnose(ctx context.Context, path string, quick bool, progress func(what string, share float64)) (diagnosis.Report, error) {
	file, err := trace.Open(path)
	if err != nil {
		return diagnosis.Report{}, failure.Usage("name a run directory that headway run made, or a trace file", "%w", err)
	}
	name := file.Name()
	file.Close()
	open := func() (io.ReadCloser, int64, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}
	learned, err := learnedOf(name)
	if err != nil {
		return diagnosis.Report{}, err
	}
	r, err := diagnosis.OfTrace(ctx, open, diagnosis.Options{Run: path, Uncovered: experiment.Uncovered, Learned: learned, ClosedForms: quick, Progress: progress})
	return r, diagnoseError(name, err)
}

// diagnoseError says what to do about a trace that cannot be judged.
func diagnoseError(name string, err error) error {
	var at *trace.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return failure.Run("", "interrupted")
	case errors.Is(err, diagnosis.ErrEmpty):
		return failure.Run("let it make some train steps; headway status shows what a run waits for", "%w", err)
	case errors.As(err, &at) && at.Line <= 1:
		return failure.Usage("name a run's directory or its "+trace.FileName+", of this version of headway, or another framework's log with --from", "%s: %w", name, err)
	case errors.As(err, &at):
		return failure.Run("restore the file from a copy; nothing after that place can be trusted", "%s: %w", name, err)
	}
	return failure.Run("", "%s: %w", name, err)
}

// learnedOf is what the trainer of a run said, by its directory or its trace. A file of another name may lie beside
// another run's.
func learnedOf(path string) ([]diagnosis.Learned, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return Learned(path)
	case trace.Is(path):
		return Learned(filepath.Dir(path))
	}
	return nil, nil
}

// Learned reads what the trainer said of each step from metrics.jsonl, where there is one.
// A line that is half written or unreadable is passed over: it is no more than a step unknown.
func Learned(dir string) ([]diagnosis.Learned, error) {
	file, err := os.Open(filepath.Join(dir, steps.File))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var list []diagnosis.Learned
	var newest *steps.Forward
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, steps.LineMax)
	for lines.Scan() {
		var line steps.Line
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		said := diagnosis.Learned{Step: line.Step, ClipFraction: line.ClipFraction, MeanLogRatio: line.MeanLogRatio, EffectiveSampleSize: line.EffectiveSampleSize}
		if f, judged := line.Forward(); judged {
			f = f.After(newest)
			newest = &f
			said.Forward = &diagnosis.Forward{Agrees: f.Agrees, Says: f.String()}
		}
		if said.EffectiveSampleSize != 0 || said.Forward != nil {
			list = append(list, said)
		}
	}
	return list, lines.Err()
}
