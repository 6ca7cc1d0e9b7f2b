package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

const presetsFile = "../docs/presets.md"

// Every preset resolves alone, is what its settings say, and is one the loop
// accepts.
func TestPresetsResolve(t *testing.T) {
	for _, p := range Presets() {
		c := mustLoad(t, "preset: "+p.Name)
		if err := c.LoopConfig().WithDefaults().Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if len(c.Warnings()) > 0 {
			t.Errorf("%s warns of itself: %v", p.Name, c.Warnings())
		}
		printed := mustLoad(t, string(c.YAML()))
		if !printed.Equal(c) {
			t.Errorf("%s changes in print:\n%s\nthen:\n%s", p.Name, c.YAML(), printed.YAML())
		}
		for _, s := range p.Settings {
			set, err := mustLoad(t, "").Set(s.Key + "=" + s.Value)
			if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			if !strings.Contains(string(c.YAML()), leaf(s.Key)+": "+s.Value) {
				t.Errorf("%s: %s is not %s in\n%s", p.Name, s.Key, s.Value, c.YAML())
			}
			if !set.given(s.Key) || s.From == "" {
				t.Errorf("%s: %s comes from nowhere", p.Name, s.Key)
			}
		}
		if len(p.Differs) == 0 || len(p.Sources) == 0 {
			t.Errorf("%s says neither what differs nor where it was read", p.Name)
		}
	}
}

// A preset is overridden by giving its keys, all at once: nothing of it is left
// but what is fixed.
func TestPresetsGiveWayToTheDocument(t *testing.T) {
	plain := mustLoad(t, "sync: {mode: in_flight, every: 1, trainer: free}\ntrainer: {correction: {kind: none}}")
	for _, p := range Presets() {
		c := mustLoad(t, "preset: "+p.Name+"\nsync: {mode: in_flight, trainer: free}\ntrainer: {correction: {kind: none}}")
		if c.Sync.Mode != plain.Sync.Mode || c.Sync.Trainer != plain.Sync.Trainer || c.Trainer.Correction.Kind != plain.Trainer.Correction.Kind {
			t.Errorf("%s: something of its sync or correction is left:\n%s", p.Name, c.YAML())
		}
	}
}

// Every preset can be laid over every other's document, as a grid over presets
// does: nothing of the other is left.
func TestPresetsReplaceOneAnother(t *testing.T) {
	for _, p := range Presets() {
		for _, q := range Presets() {
			over := mustLoad(t, string(mustLoad(t, "preset: "+p.Name).YAML()), "preset="+q.Name)
			alone := mustLoad(t, "preset: "+q.Name)
			if fmt.Sprintf("%+v", over.LoopConfig()) != fmt.Sprintf("%+v", alone.LoopConfig()) || over.Trainer.Correction != alone.Trainer.Correction {
				t.Errorf("%s over %s:\n%+v\nalone:\n%+v", q.Name, p.Name, over.LoopConfig(), alone.LoopConfig())
			}
		}
	}
	// The sizes that a document says in verl's words are its own, not its policy's.
	c := mustLoad(t, "queue: {policy: threshold, staleness_threshold: 1, ppo_mini_batch_size: 6, rollout: {n: 4}}", "preset=areal")
	if c.BatchGroups() != 6 || c.Rollout.GroupSize != 4 {
		t.Errorf("a batch of %d groups of %d, want 6 of 4", c.BatchGroups(), c.Rollout.GroupSize)
	}
}

// TestPresetsDocument regenerates docs/presets.md; with -rewrite it writes the file.
func TestPresetsDocument(t *testing.T) {
	want := presetsDocument()
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(presetsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(presetsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is not what config/presets.go says: go test ./config -run Presets -rewrite", presetsFile)
	}
}

func presetsDocument() string {
	var b strings.Builder
	b.WriteString(`# Reference: how do the rules of other frameworks map to a document?

Generated from ` + "`config/presets.go`" + ` by ` + "`make generate`" + `.

` + "`preset: NAME`" + ` sets the rules of a framework's loop as keys of a Headway document. The rules say which
groups are admitted, wait or are dropped, and how weights change under running rollouts. They also say how the trainer
corrects for stale tokens. A preset sets nothing about the size of a run: concurrency, batch, groups, lengths and rates are the
document's. So rules can be compared on one workload:

` + "```" + `
headway simulate examples/simulation.yaml --grid preset=verl-fully-async,areal,prime-rl,skyrl
headway config --set preset=areal
` + "```" + `

- Keys in the document come before the preset's, and overrides before both. Keys marked **fixed** define
  the preset. A document that says otherwise is refused, with the preset, the key and the remedy.
- A preset given by ` + "`--set preset=NAME`" + ` comes before the document's keys, so that one document can be
  run under several.
- Values are the framework's own defaults where it has the same knob. They were read from the projects' files, and
  nothing of theirs was run.

| preset | framework | rule |
|---|---|---|
`)
	for _, p := range Presets() {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", p.Name, p.Name, p.Framework, p.Summary)
	}
	for _, p := range Presets() {
		fmt.Fprintf(&b, "\n## %s\n\n%s: %s.\n\n| key | value | what it is there |\n|---|---|---|\n", p.Name, p.Framework, p.Summary)
		for _, s := range p.Settings {
			key := "`" + s.Key + "`"
			if s.Fixed {
				key += " (**fixed**)"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s |\n", key, s.Value, s.From)
		}
		b.WriteString("\nDifferences:\n\n")
		for _, d := range p.Differs {
			fmt.Fprintf(&b, "- %s\n", d)
		}
		fmt.Fprintf(&b, "\nRead in: %s.\n", strings.Join(p.Sources, "; "))
	}
	return b.String() + verlNames()
}

// verlNames is the part of the page about keys in verl's words.
func verlNames() string {
	var b strings.Builder
	b.WriteString(`
## verl's names

Under ` + "`queue: {policy: threshold, …}`" + ` the parameters of verl's fully asynchronous trainer keep their names, and
` + "`headway config FILE`" + ` prints what they mean here. Where one of Headway's own keys is given too, both must
agree; an override comes before either.

| verl | here |
|---|---|
| ` + "`staleness_threshold`" + ` | its own key |
`)
	for _, known := range verlKeys {
		names := make([]string, len(known.names))
		for i, name := range known.names {
			names[i] = "`" + strings.TrimPrefix(name, "queue.") + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` |\n", strings.Join(names, ", "), known.own)
	}
	b.WriteString("| `train_batch_size`, `gen_batch_size` | without effect, as there |\n" +
		"| `rollout` and `trainer`: `nnodes`, `n_gpus_per_node` | for information |\n")
	return b.String()
}

func leaf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }
