package taskset

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Options say where tasks are and which fields of a file they use.
type Options struct {
	// Paths are files, or directories of files or of Harbor tasks: JSON lines (.jsonl, .ndjson,
	// .json, also compressed by gzip or Zstandard) and Parquet. At least one.
	Paths []string
	// Columns reads files of Parquet; nil refuses them.
	Columns Columns
	// HeldOutPaths have tasks for evaluation alone. With them, Paths are for training alone.
	HeldOutPaths []string
	// HeldOut is the share of prompts, below 1, that is kept for evaluation where there are no
	// HeldOutPaths. 0 keeps none.
	HeldOut float64
	// Map names the fields.
	Map Mapping
	// System is a system message for tasks that have none of their own.
	System string
	// Levels is how many levels the run's curriculum chooses from: each of 1 to Levels must have a
	// training task. 0 asks for none.
	Levels int
	// Work is the directory in the sandbox that relative paths of files begin in. Default /work.
	Work string
	// LineMax bounds one line or row, SetMax all of them together, in bytes. Defaults 16 MiB and 8 GiB.
	LineMax, SetMax int
}

// Columns reads a Parquet file of size bytes. It calls row with each row as a JSON object, or with why it is none. It ends
// where row wants no more. Package columns has one.
type Columns func(f io.ReaderAt, size int64, row func(object []byte, err error) (more bool)) error

// Mapping names the field of a file for each part of a Task, by dotted paths: reward_model.ground_truth
// is the member ground_truth of the object reward_model. An empty path is the part's own name, which a file may lack
// (but for prompt). A path that is given must be in the file. A null is a field that is not there.
type Mapping struct {
	// ID is a text or a whole number; without it a task is called after its file and line.
	ID string
	// Prompt is a text, which is the user's message, or a list of chat messages. Default prompt, else messages.
	Prompt string
	// System is a text that comes before the prompt.
	System string
	// Answer is read by the verifier.
	Answer string
	// Level is a whole number from 0, or a text that ends in one ("Level 3").
	Level string
	// Files and Hidden are objects of texts by path.
	Files, Hidden string
	// Test is a shell command.
	Test string
	// TurnsMax is a whole number, TimeoutS seconds.
	TurnsMax, TimeoutS string
}

// part is one part of a task and the field it comes from.
type part struct {
	name string
	path []string
	// given: the user named the path. Each row must have the field.
	given, each bool
}

// Parts of a task, as they stand in loader.parts.
const (
	partID = iota
	partPrompt
	partSystem
	partAnswer
	partLevel
	partFiles
	partHidden
	partTest
	partTurnsMax
	partTimeoutS
	partCount
)

func (m Mapping) parts() [partCount]part {
	var parts [partCount]part
	for i, p := range [partCount]struct {
		name, path string
		each       bool
	}{{"id", m.ID, true}, {"prompt", m.Prompt, true}, {"system", m.System, false}, {"answer", m.Answer, true}, {"level", m.Level, false},
		{"files", m.Files, false}, {"hidden", m.Hidden, false}, {"test", m.Test, false}, {"turns_max", m.TurnsMax, false}, {"timeout_s", m.TimeoutS, false}} {
		given := p.path != ""
		if !given {
			p.path = p.name
		}
		parts[i] = part{name: p.name, path: strings.Split(p.path, "."), given: given, each: p.each && given || i == partPrompt}
	}
	return parts
}

func (p *part) field() string { return strings.Join(p.path, ".") }

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	o.Work = cmp.Or(o.Work, "/work")
	o.LineMax = cmp.Or(o.LineMax, 16<<20)
	o.SetMax = cmp.Or(o.SetMax, 8<<30)
	return o
}

// validate checks what can be said without a file.
func (o *Options) validate() error {
	switch {
	case len(o.Paths) == 0:
		return fmt.Errorf("taskset: no file is named: want at least one JSONL or Parquet file, or a directory of them or of Harbor tasks")
	case !(o.HeldOut >= 0 && o.HeldOut < 1):
		return fmt.Errorf("taskset: the held-out share is %g: want 0 or more and below 1", o.HeldOut)
	case o.HeldOut > 0 && len(o.HeldOutPaths) > 0:
		return fmt.Errorf("taskset: there are files for evaluation and a held-out share of %g: want one of them", o.HeldOut)
	case o.Levels < 0 || o.LineMax < 0 || o.SetMax < 0:
		return fmt.Errorf("taskset: levels, the longest line and the largest set are %d, %d and %d: want none below 0", o.Levels, o.LineMax, o.SetMax)
	}
	for _, p := range o.Map.parts() {
		if slices.Contains(p.path, "") {
			return fmt.Errorf("taskset: %s is mapped to %q, in which a name is empty: want names with single dots between", p.name, p.field())
		}
	}
	return nil
}
