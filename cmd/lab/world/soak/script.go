package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// Script is a plan that is kept in a file, with a word on it.
type Script struct {
	// Comment says what the plan found.
	Comment string `json:"comment,omitempty"`
	// Rule is the rule that a run of it broke when it was kept.
	Rule string `json:"rule,omitempty"`
	plan.Plan
}

// ReadScript reads a script, or a plan alone.
func ReadScript(path string) (Script, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Script{}, failure.Usage("give a seed, which is a number, or the path of a plan", "there is no plan %s", path)
	}
	if err != nil {
		return Script{}, err
	}
	var s Script
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&s); err != nil {
		return Script{}, failure.Usage("cmd/lab/world/plan has the fields of a plan", "%s is no plan: %w", path, err)
	}
	if err := s.Check(); err != nil {
		return Script{}, failure.Usage("", "%s is no plan: %w", path, err)
	}
	return s, nil
}

// Write keeps the script in a file.
func (s Script) Write(path string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replace.File(path, append(text, '\n'), 0o644)
}

// Keep keeps a failure in a folder: the plan as a script, and beside it all that the program printed. It returns the
// path of the script.
func Keep(folder, name string, r program.Result) (string, error) {
	s := Script{Comment: fmt.Sprintf("seed %d: %s", r.Seed, r.Text), Rule: r.Rule, Plan: r.Plan}
	path := filepath.Join(folder, name+".json")
	if err := s.Write(path); err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s: %s\n\nstandard output:\n%s\n\nstandard error:\n%s\n", r.Rule, r.Text, r.Stdout, r.Stderr)
	return path, os.WriteFile(filepath.Join(folder, name+".txt"), []byte(text), 0o644)
}
