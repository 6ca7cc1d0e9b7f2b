package compare

import (
	"context"
	"io"
	"path/filepath"

	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/experiment"
)

// Findings diagnoses the run whose trace lies at a path, as far as it has been written.
func Findings(path, name string) dashboard.Diagnose {
	return func(ctx context.Context, quick bool) (diagnosis.Report, error) {
		dir := ""
		open := func() (io.ReadCloser, int64, error) {
			file, err := trace.Open(path)
			if err != nil {
				return nil, 0, err
			}
			dir = filepath.Dir(file.Name())
			info, err := file.Stat()
			if err != nil {
				return nil, 0, err
			}
			return file, info.Size(), nil
		}
		probe, _, err := open()
		if err != nil {
			return diagnosis.Report{}, err
		}
		probe.Close()
		learned, err := Learned(dir)
		if err != nil {
			return diagnosis.Report{}, err
		}
		return diagnosis.OfTrace(ctx, open, diagnosis.Options{Run: name, Uncovered: experiment.Uncovered, Learned: learned, ClosedForms: quick})
	}
}
