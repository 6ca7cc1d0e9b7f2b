package config

import (
	"strings"
	"testing"
)

// TestMigrate holds what becomes of a document's text: its comments stay with their keys, and a document without old
// keys stays as it is, byte for byte.
func TestMigrate(t *testing.T) {
	for _, c := range []struct{ name, old, now string }{
		{"nothing to do", "seed: 3   # odd\nrollout:   {group_size: 4}\n", "seed: 3   # odd\nrollout:   {group_size: 4}\n"},
		{"comments", `# Head.
rollout:
  # how long
  length: {kind: fixed, mean_tokens: 8} # eol
  group_size: 4 # stays
  # the judge,
  # in two lines
  judge:
    # its time
    time: {mean_s: 3} # s
    concurrency: 4
# sync is short
sync: {time_s: 4} # why
train: {batch: 8, step_s: 3} # flow
steps: {warmup: 4}

# the end
`, `# Head.
rollout:
  group_size: 4 # stays
train: {batch: 8} # flow
modelled:
  # how long
  length: {kind: fixed, mean_tokens: 8} # eol
  # the judge,
  # in two lines
  verifier:
    # its time
    time: {mean_s: 3} # s
    concurrency: 4
  sync:
    # sync is short
    # why
    time_s: 4
  train: {step_s: 3}
steps: {warmup: 4}

# the end
`},
		{"dotted keys and null", "rollout.length.mean_tokens: 5\nrollout: {judge: null}\n", "modelled.length.mean_tokens: 5\nmodelled:\n  verifier: null\n"},
		{"all of a document", "train: {step_s: 3}\n", "modelled:\n  train: {step_s: 3}\n"},
		{"a section that is there", "modelled:\n  solve: {rate: 0.5}\ntrain:\n  step_s: 3\n", "modelled:\n  solve: {rate: 0.5}\n  train:\n    step_s: 3\n"},
		{"renamed where they stand", `engines:
  - {slots: 96, modelled_speed: 1} # plain
  - slots: 32
    speed: 0.5 # slow
store: {sync: always} # safe
gateway:
  # as hermes writes
  tools: hermes
sandbox: {time_s: 9, retries: 1}
environment.warmup_steps: 3 # first
queue:
  policy: replay
  size: 256 # rollouts
`, `engines:
  - {slots: 96, modelled_speed: 1} # plain
  - slots: 32
    modelled_speed: 0.5 # slow
store: {durability: always} # safe
gateway:
  # as hermes writes
  tool_format: hermes
sandbox: {timeout_s: 9, retries: 1}
environment.supervised_steps: 3 # first
queue:
  policy: replay
  capacity: 256 # rollouts
`},
		{"a removed key", "control: {target: 2, objective: throughput}\n", "control: {target: 2}\n"},
	} {
		now, _, err := Migrate("run.yaml", []byte(c.old))
		if err != nil || string(now) != c.now {
			t.Errorf("%s: %v\n%s\nwanted\n%s", c.name, err, now, c.now)
			continue
		}
		before, err := ParseRecorded("run.yaml", []byte(c.old))
		after, other := Parse("run.yaml", now)
		if err != nil || other != nil || !before.Equal(after) {
			t.Errorf("%s: the text says something else: %v, %v", c.name, err, other)
		}
	}
}

func TestMigrateRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"train: {step_s: 3}\nmodelled: {train: {step_s: 4}}\n": "modelled.train.step_s: is given by its old key, too",
		"queue: {policy: replay, size: 256, capacity: 128}\n":  "queue.capacity: is given by its old key, too",
		"train: {step_s: 3}\nmodelled: 4\n":                    "modelled: is not written as a section",
		"train: {step_s: 3\n":                                  "not YAML",
	} {
		if now, _, err := Migrate("run.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v\n%s", text, err, now)
		}
	}
}
