package run

import (
	"reflect"
	"testing"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// A finished run that is resumed says once more where its staleness came from.
func TestAFinishedRunKeepsItsAttribution(t *testing.T) {
	l, err := loop.New(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
	if err != nil {
		t.Fatal(err)
	}
	state := &live.Resume{Loop: l, Recorder: metrics.NewRecorder(l.Config()), Attribution: attribution.New(l.Config())}
	state.Recorder.Beside = state.Attribution
	state.Recorder.Observe(loop.Event{Time: 3e9, Kind: loop.RunStarted}, metrics.Measured{}, nil)
	want := state.Attribution.Summary()
	if want.Trainer.Total == 0 {
		t.Fatalf("nothing is attributed: %+v", want)
	}
	resumed := &Resumed{State: state}
	if got := resumed.Result().Attribution; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	state.Attribution = nil // its state could not be read
	if got := resumed.Result().Attribution; got.Groups != 0 {
		t.Errorf("without one: %+v", got)
	}
}
