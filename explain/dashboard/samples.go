package dashboard

import (
	"bufio"
	"encoding/json"
	"github.com/headway-rl/headway/observe/steps"
	"os"
	"path/filepath"
	"slices"
)

// ReadSamples gives a model the groups that lie in a run's samples/, as many as it keeps: the newest. A file that is not
// whole is read as far as it goes.
func ReadSamples(dir string, model *Model) {
	names, _ := filepath.Glob(filepath.Join(dir, "samples", "step-*.jsonl"))
	slices.Sort(names) // which is the order of the steps
	for _, name := range names {
		readSampleFile(name, model)
	}
}

// sampleLineMax bounds a line of a file of samples.
const sampleLineMax = 64 << 20

func readSampleFile(name string, model *Model) {
	file, err := os.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, sampleLineMax)
	for lines.Scan() {
		var d GroupDetail
		if json.Unmarshal(lines.Bytes(), &d) != nil || d.ID <= 0 {
			continue
		}
		rollouts, line := d.Rollouts, d.GroupLine
		model.Keep(Readable{ID: d.ID, Step: d.Step, Prompt: d.PromptText, Bytes: int64(2 * len(lines.Bytes())), Tokens: true, Text: d.PromptText != "",
			Rollouts: func() []RolloutDetail { return rollouts }, Line: &line, Start: d.StartVersion, Ready: d.ReadyVersion})
	}
}

// ShownFigures are the figures of a step that the dashboard shows.
func ShownFigures(l *steps.Line) StepFigures {
	f := StepFigures{Step: int64(l.Step), ClipFraction: l.ClipFraction, MeanLogRatio: l.MeanLogRatio, EffectiveSampleSize: l.EffectiveSampleSize}
	if l.HeldOutAccuracy != nil && l.HeldOutStep != nil {
		f.HeldOut, f.HeldOutStep = l.HeldOutAccuracy, int64(*l.HeldOutStep)
	}
	if l.HeldOut != nil { // it is drawn beside the reward of training, which is the same figure
		f.HeldOut = &l.HeldOut.Reward
	}
	return f
}
