package study

import (
	"fmt"

	"github.com/headway-rl/headway/config"
)

// Scenario is a kind of work that arms are compared on.
type Scenario struct {
	// Name as the command line has it; Title for people.
	Name, Title string
	// Set are its keys.
	Set []string
}

// Scenarios of live comparisons.
func Scenarios() []Scenario {
	return []Scenario{
		{"plain", "no tool time", nil},
		{"tools", "tool time with a lognormal tail", []string{"environment.service_time={kind: lognormal, mean_s: 0.015, tailness: 70}"}},
	}
}

// common are the keys of every live arm: the model's and the machine's. The least
// times of a decode and a train step are those of hardware that is not there, so
// that the machine's noise and the number of its cores matter little.
func common(groupSize, batch, concurrency int, decodeStepS, stepS float64) []string {
	return []string{
		"environment.task=reverse", "environment.letters_max=4",
		fmt.Sprintf("rollout.group_size=%d", groupSize), fmt.Sprintf("train.batch=%d", batch), fmt.Sprintf("rollout.concurrency=%d", concurrency),
		fmt.Sprintf("engines=[{kind: embedded, decode_step_s: %g}]", decodeStepS), fmt.Sprintf("trainer.step_s=%g", stepS), "trainer.threads=1",
		"evaluate.every=0", "store.samples_every=0", "store.keep_versions=1000000", "trainer.steps=1000000",
	}
}

// freshest are the arms beside the presets: queue-drop and hold with newest first.
func freshest() []Contestant {
	return []Contestant{
		{"queue-drop, q=2", "Never pauses; the oldest group of a full queue is dropped.", []string{"queue.policy=drop", "queue.factor=2"}},
		{"queue-drop, q=1", "The same with one batch of capacity.", []string{"queue.policy=drop", "queue.factor=1"}},
		{"headway: hold 0.3, newest, q=2", "No group opens shortly before the weights change; the newest ready groups are trained.",
			[]string{"queue.policy=drop", "queue.factor=2", "queue.select=newest", "queue.hold=0.3"}},
		{"headway: hold 0.7, fresh, q=2", "The same for longer, and a batch is a random choice among the groups ready since the last one.",
			[]string{"queue.policy=drop", "queue.factor=2", "queue.select=fresh", "queue.hold=0.7"}},
	}
}

// Presets compares the loops of all presets with queue-drop and with hold, on
// one task.
func Presets(s Scenario, seeds []uint64, wallS float64) Contest {
	c := Contest{
		Name: "presets-" + s.Name, Title: "Every framework's rules on one task: " + s.Title,
		Summary: "Each framework's loop as its preset has it, corrections included, and Headway's own rules, reversing words with a small transformer on embedded engine and trainer: " +
			"C 64, B 64, S 8; a decode step takes at least 3 ms, a train step at least 30 ms, so that rollouts are made well faster than they are trained on where no tools take time.",
		Common: append(common(8, 64, 64, 0.003, 0.03), s.Set...),
		Arms:   freshest(), Seeds: seeds, WallS: wallS,
	}
	for _, p := range config.Presets() {
		c.Arms = append(c.Arms, Contestant{Name: p.Name, Note: p.Framework + ": " + p.Summary + ".", Set: []string{"preset=" + p.Name}})
	}
	return c
}

// HoldLive compares hold and newest first with queue-drop in live runs.
func HoldLive(s Scenario, seeds []uint64, wallS float64) Contest {
	return Contest{
		Name: "hold-live-" + s.Name, Title: "Hold and newest first against queue-drop, live: " + s.Title,
		Summary: "Reversing words with a small transformer on embedded engine and trainer: C 64, B 32, S 4, so that C/B = 2 and C/S = 16; a decode step takes at least 6 ms, " +
			"a train step at least 20 ms, so that rollouts are made somewhat faster than they are trained on where no tools take time.",
		Common: append(common(4, 32, 64, 0.006, 0.02), s.Set...),
		Arms: append(freshest(), Contestant{"headway: learned hold, fresh, q=2", "The hold follows what it costs: as long as what would be dropped anyway pays for, and 2 % of the slots' time.",
			[]string{"queue.policy=drop", "queue.factor=2", "queue.select=fresh", "queue.hold=0.9", "queue.hold_adaptive=true", "queue.hold_cost=0.02"}}),
		Seeds: seeds, WallS: wallS,
	}
}
