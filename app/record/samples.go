package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"os"
	"path/filepath"
)

// writeReadable writes the groups of a step to samples/, a group a line, for the rollout reader.
func (w *sampleWriter) writeReadable(step loop.Version, groups []*keptGroup) error {
	file, err := os.OpenFile(filepath.Join(w.dir, sampleFile(step, ".jsonl")), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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
