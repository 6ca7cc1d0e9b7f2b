package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// writeReadable writes the groups of a step to samples/, a group a line, for the rollout reader.
func (w *sampleWriter) writeReadable(step loop.Version, groups []*keptGroup) error {
	file, err := os.Create(filepath.Join(w.dir, sampleFile(step, ".jsonl")))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	enc := json.NewEncoder(out)
	for _, k := range groups {
		d := dashboard.GroupDetail{GroupLine: k.line(), StartVersion: k.group.StartVersion, ReadyVersion: k.group.ReadyVersion, Rollouts: k.rollouts(), PromptText: k.prompt()}
		err = errors.Join(err, enc.Encode(d))
	}
	return errors.Join(err, out.Flush(), file.Close())
}

// keepOf is as much of a batch as a sample file has: whole groups, of which the last may be more than its share.
func keepOf(b port.Batch, spell func([]int32) string, std bool) []*keptGroup {
	var out []*keptGroup
	rollouts := 0
	for _, g := range b.Groups {
		if rollouts >= samplesPerBatch {
			break
		}
		rollouts += len(g.Samples)
		out = append(out, &keptGroup{group: g, from: b.Version, spell: spell, std: std})
	}
	return out
}

// readSamples gives a model the groups that lie in a run's samples/, as many as it keeps: the newest. A file that is not
// whole is read as far as it goes.
func readSamples(dir string, model *dashboard.Model) {
	names, _ := filepath.Glob(filepath.Join(dir, "samples", "step-*.jsonl"))
	slices.Sort(names) // which is the order of the steps
	for _, name := range names {
		readSampleFile(name, model)
	}
}

// sampleLineMax bounds a line of a file of samples.
const sampleLineMax = 64 << 20

func readSampleFile(name string, model *dashboard.Model) {
	file, err := os.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, sampleLineMax)
	for lines.Scan() {
		var d dashboard.GroupDetail
		if json.Unmarshal(lines.Bytes(), &d) != nil || d.ID <= 0 {
			continue
		}
		rollouts, line := d.Rollouts, d.GroupLine
		model.Keep(dashboard.Readable{ID: d.ID, Step: d.Step, Prompt: d.PromptText, Bytes: int64(2 * len(lines.Bytes())), Tokens: true, Text: d.PromptText != "",
			Rollouts: func() []dashboard.RolloutDetail { return rollouts }, Line: &line, Start: d.StartVersion, Ready: d.ReadyVersion})
	}
}
