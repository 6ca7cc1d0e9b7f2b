package record

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/train/grpo"
)

// StepLine is a train step as a line of metrics.jsonl.
func StepLine(d live.StepDone) steps.Line {
	p, r := d.Point, d.Report
	from := d.Attribution.Split
	return steps.Line{
		Control: steps.NewControl(d.Status.Control, &p.Control), FromSync: from[attribution.Sync], FromInnerSteps: from[attribution.Inner], FromConcurrency: from[attribution.Concurrency],
		FromEnvironment: from[attribution.Environment], FromTail: from[attribution.Tail], FromQueue: from[attribution.Queue], FromFill: from[attribution.Fill],
		Step: p.Step, Time: float64(p.TimeNS) / 1e9, Reward: p.Reward, StalenessMean: p.Staleness, PQS: p.PQS, IQS: p.IQS,
		StalenessMax: p.StalenessMax, TokenStalenessMean: p.TokenStaleness, PeriodS: float64(p.PeriodNS) / 1e9,
		TrainS: float64(p.TrainNS) / 1e9, TrainerAbsentS: float64(p.AbsentNS) / 1e9, TrainerIdleRatio: p.TrainerIdle, RolloutIdleRatio: p.RolloutIdle,
		QueueGroups: p.QueueGroups, ResponseTokens: p.Tokens, Loss: r.Loss, GradNorm: r.GradNorm, ClipFraction: r.ClipFraction,
		ActiveClipFraction: r.ActiveClipFraction, MeanLogRatio: r.MeanLogRatio, EffectiveSampleSize: r.EffectiveSampleSize,
		PredictedClipFraction: r.PredictedClipFraction, MaskedFraction: r.MaskedFraction, TruncatedFraction: r.TruncatedFraction,
		Minibatches: r.Minibatches, Health: r.Health, Metrics: r.Metrics, OffPolicy: lagLines(r.GroupLag),
	}
}

// StepLog writes metrics.jsonl and keeps its newest lines for the report.
type StepLog struct {
	path string
	// file is nil before the first line of this process: until then the file is as the process before left it.
	file  *os.File
	Lines []steps.Line
	// kept are the bytes of the lines that stay. ahead are lines of steps that the log does not have: of one that is found
	// published, nobody says its figures again.
	kept  int64
	ahead map[loop.Version]steps.Line
	// unwritten is what there was no room for, tried again with every line; err is what a line
	// failed by otherwise, the first of them.
	unwritten []byte
	err       error
}

// openStepLog reads the log of a run directory. Lines of steps after upTo, which a resumed run makes again or finds
// published, are cut off with the first line that is added.
func openStepLog(dir string, upTo loop.Version) (*StepLog, error) {
	log := &StepLog{path: filepath.Join(dir, steps.File), ahead: map[loop.Version]steps.Line{}}
	old, err := os.Open(log.path)
	if errors.Is(err, fs.ErrNotExist) {
		return log, nil
	}
	if err != nil {
		return nil, err
	}
	defer old.Close()
	scanner := bufio.NewScanner(old)
	scanner.Buffer(nil, steps.LineMax)
	at := int64(0)
	for scanner.Scan() {
		at += int64(len(scanner.Bytes())) + 1
		var line steps.Line
		switch {
		case json.Unmarshal(scanner.Bytes(), &line) != nil:
		case line.Step <= upTo:
			log.keep(line)
			log.kept = at
		default:
			log.ahead[line.Step] = line
		}
	}
	if err := scanner.Err(); err != nil { // the lines behind would be lost
		return nil, fmt.Errorf("%s: %w", log.path, err)
	}
	return log, nil
}

// keep has a line among the newest ones.
func (l *StepLog) keep(line steps.Line) {
	if len(l.Lines) >= 2*live.SeriesSteps { // metrics.jsonl has them all
		l.Lines = append([]steps.Line(nil), l.Lines[len(l.Lines)-live.SeriesSteps:]...)
	}
	l.Lines = append(l.Lines, line)
}

// begin opens the file for more lines. Where it has lines that do not stay, a copy without them takes its place: who reads it
// keeps the old one.
func (l *StepLog) begin() error {
	size := int64(0)
	if info, err := os.Stat(l.path); err == nil {
		size = info.Size()
	}
	switch {
	case size < l.kept:
		l.unwritten = append([]byte{'\n'}, l.unwritten...) // its last line was never ended
	case size > l.kept:
		old, err := os.ReadFile(l.path)
		if err == nil {
			err = replace.File(l.path, old[:min(l.kept, int64(len(old)))], 0o600)
		}
		if err != nil {
			return err
		}
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		l.file = file
	}
	return err
}

func (l *StepLog) add(line steps.Line) {
	l.keep(line)
	l.render(line)
	if err := l.flush(); err != nil && !NoRoom(err) {
		l.unwritten, l.err = nil, cmp.Or(l.err, err)
	}
}

// render puts a line behind those that are to be written.
func (l *StepLog) render(line steps.Line) {
	text, err := json.Marshal(line)
	if err != nil {
		l.err = cmp.Or(l.err, err)
		return
	}
	l.unwritten = append(append(l.unwritten, text...), '\n')
}

// flush writes what there is room for, from where the last write ended.
func (l *StepLog) flush() error {
	if len(l.unwritten) == 0 {
		return nil
	}
	if l.file == nil {
		if err := l.begin(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(l.unwritten)
	l.unwritten = l.unwritten[:copy(l.unwritten, l.unwritten[n:])]
	return err
}

// Close writes what is left and closes the file. The error is the first that a line failed by.
func (l *StepLog) Close() error {
	l.err = cmp.Or(l.err, l.flush())
	if l.file == nil {
		return l.err
	}
	return errors.Join(l.err, l.file.Sync(), l.file.Close())
}

// sampleWriter writes readable rollouts of every so many train steps to samples/.
type sampleWriter struct {
	dir   string
	every int
	// spell renders tokens, nil where they cannot be; std: advantages are over the deviation of the rewards.
	spell func([]int32) string
	std   bool
	mu    sync.Mutex
	// last is the newest batch's text, for the report.
	last []SampleText
	// kept are the groups of the newest sampled batch while it is trained on.
	kept []*keptGroup
	// writing counts files that are being written beside the run.
	writing sync.WaitGroup
}

// SampleText is one rollout for people to read, with the versions that sampled its tokens in words.
type SampleText struct {
	Group, Prompt, Answer, Response string
	Reward, Advantage               float64
	Versions                        string
	Staleness                       loop.Version
}

// samplesPerBatch bounds what one step writes.
const samplesPerBatch = 32

// Write is called with every batch before it is trained on.
func (w *sampleWriter) Write(b port.Batch) error {
	if w.every == 0 || (b.Version+1)%loop.Version(w.every) != 0 {
		return nil
	}
	texts := batchTexts(b, w.std)
	w.mu.Lock()
	w.last, w.kept = texts, keepOf(b, w.spell, w.std)
	w.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "train step %d, from policy version %d: %s\n", b.Version+1, b.Version, report.Counted(len(b.Groups), "group"))
	group := ""
	for _, t := range texts {
		if t.Group != group {
			group = t.Group
			fmt.Fprintf(&text, "\n%s  staleness %d\n  prompt    %s\n  answer    %s\n", t.Group, t.Staleness, t.Prompt, t.Answer)
		}
		fmt.Fprintf(&text, "  response  %-16s reward %.3f  advantage %+.3f  versions %s\n", t.Response, t.Reward, t.Advantage, t.Versions)
	}
	return os.WriteFile(filepath.Join(w.dir, sampleFile(b.Version+1, ".txt")), []byte(text.String()), 0o600)
}

// sampleFile is the name of a step's file in samples/.
func sampleFile(step loop.Version, suffix string) string {
	return fmt.Sprintf("step-%06d%s", step, suffix)
}

// trained writes the groups of a sampled step once the trainer has said what it found. It does not wait for the disk;
// failed is told why there will be no file.
func (w *sampleWriter) trained(step loop.Version, ratios map[port.RolloutID][]float32, failed func(error)) {
	w.mu.Lock()
	kept := w.kept
	w.kept = nil
	w.mu.Unlock()
	if len(kept) == 0 || kept[0].from+1 != step {
		return
	}
	w.writing.Go(func() {
		for _, k := range kept {
			k.trained(ratios)
		}
		if err := w.writeReadable(step, kept); err != nil {
			failed(err)
		}
	})
}

// NewestSamples are the rollouts of the newest batch that was written down for people to read.
func (r *Record) NewestSamples() []SampleText {
	r.samples.mu.Lock()
	defer r.samples.mu.Unlock()
	return r.samples.last
}

func batchTexts(b port.Batch, std bool) []SampleText {
	var out []SampleText
	for _, g := range b.Groups {
		rewards, advantages := make([]float32, len(g.Samples)), make([]float32, len(g.Samples))
		for i := range g.Samples {
			rewards[i] = g.Samples[i].Reward
		}
		grpo.Advantages(advantages, rewards, std)
		for i := range g.Samples {
			if len(out) == samplesPerBatch {
				return out
			}
			s := &g.Samples[i]
			out = append(out, SampleText{Group: fmt.Sprintf("g%d", g.ID), Prompt: s.Prompt, Answer: s.Answer, Response: s.Response,
				Reward: float64(rewards[i]), Advantage: float64(advantages[i]), Versions: versionSpans(s), Staleness: b.Version - g.StartVersion})
		}
	}
	return out
}

// versionSpans renders which version sampled which tokens: "v3×4 v4×2".
func versionSpans(s *port.Sample) string {
	var spans []string
	for _, span := range s.Spans() {
		text := fmt.Sprintf("v%d×%d", span.Version, span.End-span.First)
		if span.Resumed {
			text = "resumed " + text
		}
		spans = append(spans, text)
	}
	return strings.Join(spans, " ")
}

// Finite replaces what JSON cannot hold by 0.
func Finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// BrokenFile is the name in a run directory of what explains a broken invariant.
const BrokenFile = "broken.json"

// writeBroken keeps the file that explains a broken invariant in a run directory, and returns what to say of it.
func writeBroken(dir string, bundle []byte) string {
	path := filepath.Join(dir, BrokenFile)
	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		return fmt.Sprintf("the file that explains this defect cannot be written: %v", err)
	}
	return "what is needed to report this defect is in " + path
}
