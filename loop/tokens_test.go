package loop_test

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// tokensDriver answers every action at once, but leaves group 1 running, which is in slot 0.
type tokensDriver struct {
	l     *loop.Loop
	todo  []loop.Event
	share float64 // of the batch that group 1 was trained in
}

func (d *tokensDriver) step(ev loop.Event) {
	actions, _ := d.l.Step(ev)
	for _, a := range slices.Clone(actions) {
		switch a.Kind {
		case loop.StartRollout, loop.StartTrainStep, loop.LoadWeights, loop.SwitchWeights:
			if a.Kind != loop.StartRollout || a.Group != 1 {
				d.todo = append(d.todo, looptest.Completion(a, 0))
			}
		case loop.GroupTrained:
			if a.Group == 1 {
				d.share = d.l.ControlStatus().LastShare
			}
		}
	}
}

// A group's tokens count by the versions that made them, whatever the group's own staleness, until it is 64 versions
// old: then all of it is as old as that.
func TestTokensOfAnOldGroup(t *testing.T) {
	for _, c := range []struct {
		versions loop.Version
		made     []loop.VersionTokens
		want     float64
	}{
		{10, []loop.VersionTokens{{Version: 0, Tokens: 5}, {Version: 9, Tokens: 2}, {Version: 10, Tokens: 3}}, 0.5},
		{10, []loop.VersionTokens{{Version: 9, Tokens: 2}, {Version: 10, Tokens: 3}}, 0.5},
		{10, []loop.VersionTokens{{Version: 10, Tokens: 40}}, 1},
		{10, []loop.VersionTokens{{Version: 10, Tokens: -40}, {Version: 8, Tokens: 9}}, 0},
		{63, []loop.VersionTokens{{Version: 63, Tokens: 10}}, 1},
		{64, []loop.VersionTokens{{Version: 64, Tokens: 10}}, 0},
		{200, []loop.VersionTokens{{Version: 136, Tokens: 5}, {Version: 200, Tokens: 5}}, 0},
	} {
		cfg := loop.Config{GroupSize: 1, BatchGroups: 1, QueueGroups: 1, EngineSlots: []int{2}, Control: &loop.Control{Share: 0.5, Within: 1, Tokens: true, Window: 4}}
		cfg.Control.Ranges[loop.SettingQueue] = loop.Range{Least: 1, Most: 2}
		cfg.QueueGroups = 2
		l, err := loop.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		d := &tokensDriver{l: l, share: -1}
		d.step(loop.Event{Kind: loop.RunStarted})
		for l.Version() < c.versions && len(d.todo) > 0 {
			ev := d.todo[0]
			d.todo = d.todo[1:]
			d.step(ev)
		}
		d.step(loop.Event{Kind: loop.RolloutScored, Group: 1, Attempt: 1, Tokens: 10, Made: c.made})
		for d.share < 0 && len(d.todo) > 0 {
			ev := d.todo[0]
			d.todo = d.todo[1:]
			d.step(ev)
		}
		if d.share != c.want {
			t.Errorf("%v, trained at v%d: a share of %g within a version, want %g", c.made, l.Version(), d.share, c.want)
		}
	}
}

// A score of fewer than no tokens, as no driver gives one, leaves counts that a snapshot takes.
func TestTokensBelowNone(t *testing.T) {
	cfg := loop.Config{GroupSize: 2, BatchGroups: 1, QueueGroups: 2, EngineSlots: []int{2}, Control: &loop.Control{Share: 0.5, Within: 1, Tokens: true}}
	cfg.Control.Ranges[loop.SettingQueue] = loop.Range{Least: 1, Most: 2}
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.Step(loop.Event{Kind: loop.RunStarted})
	l.Step(loop.Event{Kind: loop.RolloutScored, Group: 1, Attempt: 1, Tokens: -5, Made: []loop.VersionTokens{{Version: 0, Tokens: 3}}})
	text, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loop.Restore(text); err != nil {
		t.Error(err)
	}
}
