package study

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
)

// FrontierKept is a file with the progress of a study of the frontier, a line each. It has measured
// lengths, every prediction before its run begins, and the runs. Its first line names the program and
// the settings.
type FrontierKept struct {
	file    *os.File
	sampled map[uint64][][]int
	runs    map[frontierKey]FrontierRun
}

type frontierKey struct {
	split Split
	seed  uint64
}

// frontierLine is a line of the file; one of its parts is there.
type frontierLine struct {
	Program    string              `json:"program,omitempty"`
	Settings   *FrontierSettings   `json:"settings,omitempty"`
	Seed       uint64              `json:"seed,omitempty"`
	Lengths    [][]int             `json:"lengths,omitempty"`
	Prediction *FrontierPrediction `json:"prediction,omitempty"`
	Run        *FrontierRun        `json:"run,omitempty"`
}

// ErrOtherSettings is wrapped by the error of OpenFrontier for a file of other settings.
var ErrOtherSettings = errors.New("the finished runs were made under other settings")

// OpenFrontier opens or makes the file. A line that was torn by the end of the program is cut off; a file of another
// program or of other settings is refused.
func OpenFrontier(path, program string, settings FrontierSettings) (*FrontierKept, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	k := &FrontierKept{file: file, sampled: map[uint64][][]int{}, runs: map[frontierKey]FrontierRun{}}
	if err := k.read(path, program, settings); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return k, nil
}

func (k *FrontierKept) read(path, program string, settings FrontierSettings) error {
	number := 0
	none, err := readLines(k.file, func(first bool, text []byte) error {
		number++
		var line frontierLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("study: %s: line %d is none of a frontier's: %w", path, number, err)
		}
		switch {
		case first && line.Program != program:
			return fmt.Errorf("study: %s: %w: %q, want %q", path, ErrOtherProgram, line.Program, program)
		case first && (line.Settings == nil || !reflect.DeepEqual(*line.Settings, settings)):
			return fmt.Errorf("study: %s: %w: %+v, want %+v", path, ErrOtherSettings, line.Settings, settings)
		case line.Lengths != nil:
			k.sampled[line.Seed] = line.Lengths
		case line.Run != nil:
			k.runs[frontierKey{line.Run.Split, line.Run.Seed}] = *line.Run
		}
		return nil
	})
	if none && err == nil {
		err = k.put(frontierLine{Program: program, Settings: &settings})
	}
	return err
}

func (k *FrontierKept) lengths(seed uint64) ([][]int, bool) {
	if k == nil {
		return nil, false
	}
	l, have := k.sampled[seed]
	return l, have
}

func (k *FrontierKept) run(split Split, seed uint64) (FrontierRun, bool) {
	if k == nil {
		return FrontierRun{}, false
	}
	r, have := k.runs[frontierKey{split, seed}]
	return r, have
}

func (k *FrontierKept) put(line frontierLine) error {
	if k == nil {
		return nil
	}
	return writeLine(k.file, line)
}

// Close closes the file.
func (k *FrontierKept) Close() error {
	if k == nil {
		return nil
	}
	return k.file.Close()
}
