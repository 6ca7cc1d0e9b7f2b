package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

// The pages of a run that goes on have what its process before wrote of the rollouts.
func TestAResumedRunShowsItsSamples(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "samples"), 0o755); err != nil {
		t.Fatal(err)
	}
	line := `{"id":41,"step":25,"end":"trained","prompt":"21+45=","prompt_text":"21+45=","rollouts":[{"sample":0,"turns":[{"role":"policy","text":"67"}]}]}`
	if err := os.WriteFile(filepath.Join(dir, "samples", "step-000025.jsonl"), []byte(line+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rules := loop.Config{GroupSize: 4, BatchGroups: 4, EngineSlots: []int{4}, QueueGroups: 4}
	l, err := loop.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	v := NewShown(&Record{Around: Surroundings{Pages: func(_, name string, header trace.Header) dashboard.Options {
		return dashboard.Options{Rules: header.Loop.WithDefaults(), Info: dashboard.Info{Name: name}}
	}}, Parts: &parts.Parts{Dir: dir}, Steps: &StepLog{}}, "run", trace.Header{Loop: rules}, &live.Resume{Loop: l, Recorder: metrics.NewRecorder(l.Config())}, nil)
	v.stop()
	v.done.Wait()
	if d, found := v.Model.Group(41); !found || !d.Readable || len(d.Rollouts) != 1 {
		t.Errorf("%v %+v", found, d)
	}
	if list := v.Model.Groups(dashboard.Query{Readable: true}); len(list.Groups) != 1 {
		t.Errorf("%+v", list)
	}
}

// The newest version that all engines serve leaves out those that serve none, and slots those that are not there.
func TestProgressOfAnElasticRun(t *testing.T) {
	r := &Record{Parts: &parts.Parts{}, Steps: &StepLog{}}
	p := r.newProgress(live.StepDone{Point: metrics.Step{Step: 5}, Status: loop.Status{Engines: []loop.EngineStatus{
		{State: "serving", Version: 4, Active: 3, Slots: 8}, {State: "away", Version: loop.NoVersion, Slots: 8}, {State: "loading", Version: loop.NoVersion, Slots: 8},
	}}})
	if p.Version != 4 || p.Active != 3 || p.Slots != 16 {
		t.Errorf("version %d, %d of %d slots", p.Version, p.Active, p.Slots)
	}
}
