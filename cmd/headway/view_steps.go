package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
)

// stepReader reads a run's metrics.jsonl as far as its trace has been read.
type stepReader struct {
	file  *os.File
	lines *bufio.Reader
	// part is a line that is not whole yet, ahead one of a step that has not been reached.
	part  []byte
	ahead *stepLine
}

// openStepReader opens the file, nil where there is none.
func openStepReader(dir string) *stepReader {
	file, err := os.Open(filepath.Join(dir, metricsFile))
	if err != nil {
		return nil
	}
	return &stepReader{file: file, lines: bufio.NewReaderSize(file, 1<<16)}
}

// lineMax bounds a line, so that a file of something else cannot exhaust memory.
const lineMax = 1 << 20

// next returns the next line of a step up to a version, nil if there is none yet. A line that cannot be read is passed over.
func (r *stepReader) next(upTo loop.Version) *stepLine {
	for r.ahead == nil {
		text, err := r.lines.ReadSlice('\n')
		r.part = append(r.part, text...)
		if len(r.part) > lineMax {
			r.part = r.part[:0]
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return nil // it may still grow
		}
		line := new(stepLine)
		if json.Unmarshal(r.part, line) == nil {
			r.ahead = line
		}
		r.part = r.part[:0]
	}
	if r.ahead.Step > upTo {
		return nil
	}
	line := r.ahead
	r.ahead = nil
	return line
}

func (r *stepReader) close() { r.file.Close() }

// figures are those that the dashboard shows.
func (l *stepLine) figures() dashboard.StepFigures {
	f := dashboard.StepFigures{Step: int64(l.Step), ClipFraction: l.ClipFraction, MeanLogRatio: l.MeanLogRatio, EffectiveSampleSize: l.EffectiveSampleSize}
	if l.HeldOutAccuracy != nil && l.HeldOutStep != nil {
		f.HeldOut, f.HeldOutStep = l.HeldOutAccuracy, int64(*l.HeldOutStep)
	}
	return f
}
