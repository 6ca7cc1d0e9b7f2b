package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headway-rl/headway/internal/spelling"
	"github.com/headway-rl/headway/loop"
)

// TestDocuments runs the scripts of testdata. A case is a document, with
// overrides on leading lines that start with --set, and its outcome: "errors"
// prints every error, "resolve" the resolved document, "loop" the loop's rules,
// "warnings" what is doubtful about it.
func TestDocuments(t *testing.T) {
	datadriven.Walk(t, "testdata/documents", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			resolved, err := resolveCase(d.Input)
			if d.Cmd == "errors" {
				if err == nil {
					return "none\n"
				}
				return err.Error() + "\n"
			}
			if err != nil {
				return "refused:\n" + err.Error() + "\n"
			}
			switch d.Cmd {
			case "resolve":
				return only(d, string(resolved.YAML()))
			case "warnings":
				var text strings.Builder
				for _, w := range resolved.Warnings() {
					fmt.Fprintln(&text, w)
				}
				return cmp.Or(text.String(), "none\n")
			case "loop":
				rules := resolved.LoopConfig()
				goal := rules.Control
				rules.Control = nil // printed as what it points to
				if goal == nil {
					return fmt.Sprintf("%+v\n", rules)
				}
				return fmt.Sprintf("%+v\ncontrol %+v\n", rules, *goal)
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

// resolveCase resolves a case's document under its overrides.
func resolveCase(input string) (Config, error) {
	var overrides []string
	for strings.HasPrefix(input, "--set ") {
		line, rest, _ := strings.Cut(input, "\n")
		overrides = append(overrides, strings.TrimPrefix(line, "--set "))
		input = rest
	}
	c, errs := parse("run.yaml", []byte(input), false)
	return c.resolve(plainOverrides(overrides), errs)
}

// only keeps the sections a case names in its arguments, all without any.
func only(d *datadriven.TestData, document string) string {
	if len(d.CmdArgs) == 0 {
		return document
	}
	var kept strings.Builder
	keep := false
	for _, line := range strings.SplitAfter(document, "\n") {
		if line != "" && line[0] != ' ' && line[0] != '-' {
			key, _, _ := strings.Cut(line, ":")
			keep = d.HasArg(key)
		}
		if keep {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func mustLoad(t *testing.T, text string, overrides ...string) Config {
	t.Helper()
	raw, err := Parse("run.yaml", []byte(text))
	if err == nil {
		raw, err = raw.Set(overrides...)
	}
	if err == nil {
		raw, err = raw.Resolve()
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A resolved document prints, parses back equal, and resolves to itself.
func TestResolvedDocumentRoundTrips(t *testing.T) {
	for _, text := range []string{
		"",
		"modelled: {length: {kind: lognormal, tailness: 0}}",
		"modelled: {length: {kind: empirical, groups: [[1, 2], [3]]}, environment: {mean_s: 0.5, tailness: 70}}",
		"queue: {policy: max, max_staleness: 0}",
		"engines: [{slots: 3}, {slots: 5, name: big}]\nseed: 0",
		"schedule: synchronous\nsync: {every: 4}",
		"modelled: {filter: {acceptance: 0.25}}\ntrainer: {normalize_std: false}\nfilter: {zero_advantage: false}",
		"queue: {policy: bounded, eta: 0}",
		"queue: {policy: replay, balance: true, evict: drift, max_staleness: 9}\nprompts: {count: 40, requeue: true}",
		"queue: {policy: threshold, staleness_threshold: 0, ppo_mini_batch_size: 4, require_batches: 2, rollout: {n: 4, nnodes: 2}, partial_rollout: false, total_rollout_steps: 100, test_freq: -1, use_rollout_log_probs: false, gen_batch_size: 1}",
		"filter: {solve_rate: {low: 0, high: 0.5, drop: true}, curriculum: {levels: 3, explore: 0}}\nmodelled: {solve: {levels: [0, 1, 2]}}",
		"schedule: synchronous\nrollout: {oversample: 1.5, redundancy: 2, partial: {interrupt: batch, max_spans: 3}, prune: {tokens: 9}}",
		"trainer: {correction: {kind: sequence-mask, metric: kl, max_kl: 0.3, negative_only: true, version_mask: newest, version_lag: 1}}",
		"rollout: {drift: {steps: 9, length_factor: 1}}\nmodelled: {tools: {calls: 3, time: {mean_s: 2}, failure_rate: 0, output_tokens: 0}, sandbox: {start: {mean_s: 5, tailness: 0}, limit: 9}}",
		"modelled: {decode_curve: [{active: 1, tokens_per_s: 90}, {active: 128, tokens_per_s: 40}], prefill: {tokens_per_s: 100, mode: pool, workers: 2}, verifier: {time: {groups: [[1, 2], [3]]}}, scorer: {tokens_per_s: 9000, concurrency: 2}}",
		"model: {path: m}\nengines: [{kind: tinker, url: 'http://a', slots: 3}]\ntrainer: {adapter_rank: 4}",
		"modelled: {failures: {engine_mtbf_s: 900}, evaluate: {occupies: trainer, time_s: 4}}\nengines: [{slots: 3, modelled_speed: 2}, {slots: 5, name: big}]\nfailures: {engine_plan: [{engine: big, at_s: 0, down_s: 5}]}",
		"modelled: {train: {step_by: tokens, step_cv: 0, failure_rate: 0.1}, sync: {load_s: 2}, verifier: {}, tools: {calls: 0}}",
		"model: {path: m}\nengines: [{kind: vllm, url: 'http://a', slots: 3}, {kind: llamacpp, url: 'http://b', slots: 5, command: [x, '{weights}']}]\nenvironment: {prompt_tokens_max: 9}\ngateway: {tool_format: none}",
		"environment: {kind: tasks, tasks: {file: t, held_out: 0.1}, tools: [shell], verifier: {marker: '####', range: [-1, 1]}, on_limit: {disk: fail}}\nsandbox: {driver: kubernetes, retries: 0, env: [A=1], reuse: reset, kubernetes: {warm_pool: w}}",
		"environment: {task: code, language: go, operations_max: 2}",
		"preset: prime-rl", "preset: pipelinerl\nqueue: {factor: 3}", "preset: synchronous", "preset: slime\nqueue: {capacity: 256}",
	} {
		c := mustLoad(t, text)
		again, err := Parse("again", c.YAML())
		if err != nil {
			t.Fatalf("%q prints what does not parse: %v\n%s", text, err, c.YAML())
		}
		if !again.Equal(c) {
			t.Errorf("%q changes in print:\n%s\nparsed:\n%s", text, c.YAML(), again.YAML())
		}
		resolved, err := again.Resolve()
		if err != nil || !resolved.Equal(c) {
			t.Errorf("%q resolves twice to something else (%v):\n%s\nthen:\n%s", text, err, c.YAML(), resolved.YAML())
		}
	}
}

// The JSON form is the same document: YAML reads JSON.
func TestJSONIsTheSameDocument(t *testing.T) {
	c := mustLoad(t, "modelled: {length: {kind: empirical, groups: [[1, 2], [3]]}}")
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again", text)
	if err != nil || !again.Equal(c) {
		t.Fatalf("%v\n%s\n%s", err, text, again.YAML())
	}
	if !strings.HasPrefix(string(text), `{"seed":1,"schedule":"asynchronous","rollout":{`) {
		t.Errorf("the schema's order is lost: %s", text)
	}
}

// Neither defaults nor checks nor overrides touch the Config they start from.
func TestNothingIsMutated(t *testing.T) {
	raw, err := Parse("run.yaml", []byte("modelled: {length: {groups: [[4]]}}\nengines: [{slots: 8}]"))
	if err != nil {
		t.Fatal(err)
	}
	before := string(raw.YAML())
	resolved := raw.WithDefaults()
	resolvedBefore := string(resolved.YAML())
	if err := resolved.Validate(); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Set("engines.0.slots=3", "engines.1.slots=2", "modelled.length=null", "seed=9"); err != nil {
		t.Fatal(err)
	}
	resolved.Modelled.Length.Groups[0] = nil
	if string(raw.YAML()) != before {
		t.Errorf("changed from\n%s\nto\n%s", before, raw.YAML())
	}
	resolved.Modelled.Length.Groups[0] = []int{4}
	if string(resolved.YAML()) != resolvedBefore {
		t.Errorf("changed from\n%s\nto\n%s", resolvedBefore, resolved.YAML())
	}
}

// A Config built by a program, without a document behind it, resolves too.
func TestConfigWithoutADocument(t *testing.T) {
	c, err := Config{Train: Train{Batch: 16}, Rollout: Rollout{GroupSize: 4}}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if c.Seed != 1 || c.BatchGroups() != 4 || c.Queue.Policy != "bounded" || c.QueueGroups() != 8 || c.Rollout.Concurrency != 16 {
		t.Errorf("resolved to\n%s", c.YAML())
	}
	_, err = Config{Train: Train{Batch: 17}}.Resolve()
	if err == nil || !strings.HasPrefix(err.Error(), "train.batch: 17 is not a multiple") {
		t.Errorf("got %v", err)
	}
}

// One wrong value is one error, whatever was derived from it; several are all said.
func TestOneFaultIsSaidOnce(t *testing.T) {
	for _, given := range []string{"train.batch=7", "train.batch=100000000000", "rollout.concurrency=100000000"} {
		_, err := LoadWith("", Override{Text: given})
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "--set: "+strings.Replace(given, "=", ": ", 1)) {
			t.Errorf("%s: %v, want one error about it", given, err)
		}
	}
	_, err := LoadWith("", Override{Text: "environment.tools=[shell, shell, python3]"}, Override{Text: "train.batch=0"})
	if text := fmt.Sprint(err); !strings.Contains(text, "environment.tools.2: ") || !strings.Contains(text, "train.batch: 0") {
		t.Errorf("%v, want both", err)
	}
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(path)
	var found *Error
	if !errors.As(err, &found) || !errors.Is(err, fs.ErrNotExist) || found.File != path {
		t.Fatalf("got %v", err)
	}
}

func TestLoadReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("train: {batch: 24}"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, "queue.factor=2")
	if err != nil || c.QueueGroups() != 6 {
		t.Fatalf("%d groups, %v", c.QueueGroups(), err)
	}
	_, err = Load(path, "train.batch=25")
	if err == nil || !strings.HasPrefix(err.Error(), "--set: train.batch: 25 is not a multiple") {
		t.Fatalf("got %v", err)
	}
}

// Every word the schema allows means something to the loop.
func TestWordsAreTheLoopsRules(t *testing.T) {
	same := func(section, key string, meanings any) {
		t.Helper()
		found, ok := find(known(section), key)
		if !ok {
			t.Fatalf("no %s.%s", section, key)
		}
		var words []string
		for _, word := range reflect.ValueOf(meanings).MapKeys() {
			words = append(words, word.String())
		}
		slices.Sort(words)
		allowed := slices.Sorted(slices.Values(found.words))
		if !slices.Equal(words, allowed) {
			t.Errorf("%s.%s allows %v, the loop has %v", section, key, allowed, words)
		}
	}
	same("queue", "policy", policies)
	same("queue", "select", selections)
	same("rollout", "start", starts)
	same("rollout", "placement", placements)
	same("sync", "mode", modes)
	same("failures", "on_failure", failures)
	same("queue", "policy", queueKeys)
	same("modelled.length", "kind", lengthKeys)
	same("modelled.environment", "kind", serviceKeys)
	same("modelled.solve", "kind", solveKeys)
	same("queue", "evict", evictions)
	same("trainer.correction", "kind", correctionKeys)
}

func TestForSimulation(t *testing.T) {
	c, err := mustLoad(t, "modelled: {train: {utilization: 1.07}}").ForSimulation()
	if err != nil || c.Modelled.DecodeTokensPerS != 50 {
		t.Fatalf("%v, %v tokens/s", err, c.Modelled.DecodeTokensPerS)
	}
	c, err = mustLoad(t, "modelled: {train: {step_s: 2}, throughput_tokens_per_s: 900}").ForSimulation()
	if err != nil || c.Modelled.DecodeTokensPerS != 0 {
		t.Fatalf("%v, %v tokens/s", err, c.Modelled.DecodeTokensPerS)
	}
	_, err = mustLoad(t, "train:\n  batch: 8\n").ForSimulation()
	if err == nil || !strings.Contains(err.Error(), "run.yaml: modelled.train: does not say how fast the trainer is") {
		t.Fatalf("got %v", err)
	}
}

func TestModels(t *testing.T) {
	c := mustLoad(t, "modelled: {length: {kind: fixed, mean_tokens: 40}, environment: {mean_s: 2}}")
	lengths, err := c.LengthModel()
	if err != nil || lengths.Mean() != 40 {
		t.Errorf("lengths: mean %v, %v", lengths.Mean(), err)
	}
	service, err := c.EnvironmentTimes()
	if err != nil || service.Mean() != 2e9 {
		t.Errorf("service: mean %v ns, %v", service.Mean(), err)
	}
	acceptance, err := c.AcceptanceModel()
	if err != nil || acceptance.Rate() != 1 {
		t.Errorf("acceptance: %v, %v", acceptance.Rate(), err)
	}
	_, err = mustLoad(t, "modelled: {length: {file: /nowhere/lengths}}").LengthModel()
	if err == nil || !strings.HasPrefix(err.Error(), "run.yaml:1:") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// What a command refuses is placed like what the schema refuses.
func TestRefuse(t *testing.T) {
	c := mustLoad(t, "model: {context: 8}")
	tests := []struct{ key, want string }{
		{"model.context", "run.yaml:1:18: model.context: 8 is too short (allowed: at least 13)"},
		{"model.width", "run.yaml:1:8: model.width: is too short (allowed: at least 13)"},
		{"store.dir", "run.yaml: store.dir: is too short (allowed: at least 13)"},
	}
	for _, test := range tests {
		if err := c.Refuse(test.key, "is too short", "at least 13"); err.Error() != test.want {
			t.Errorf("got  %s\nwant %s", err, test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"group_size", "concurrency", "start", "seed"}
	for word, want := range map[string]string{
		"group_szie": "group_size", "groupsize": "group_size", "concurency": "concurrency",
		"strat": "start", "sede": "seed", "zzz": "", "a": "", "": "",
	} {
		if got := spelling.Nearest(word, candidates); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// FuzzParse: no document makes the parser panic, and a document that resolves
// is one that the loop accepts and that survives printing.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "null", "a: b", "seed: 1\nrollout: {concurrency: 8}", "engines: [{slots: 1}, {}]",
		"modelled: {length: {kind: empirical, groups: [[1, 2], [3]]}}\n", "train: {batch: 1e3}",
		"queue: {policy: max, max_staleness: 2, abort: true}\nsync: {every: 2}", "- 1\n- 2", "? [a]\n: b",
		"x: &a [*a]", "<<: {seed: 1}", "seed: !!int 4", "seed: 0x10", "---\n...\n---\n", "schedule: synchronous",
		"rollout: {group_size: 3, start: gang}\ntrain: {batch: 9}", "seed: |\n  text",
		"preset: areal\nqueue: {eta: 2.5, pause_at: 1.5}", "queue: {policy: threshold, staleness_threshold: .5, ppo_mini_batch_size: 3, rollout.n: 2}",
		"queue: {policy: replay, capacity: 256, gamma: 0.5}\nprompts: {count: 3}", "filter: {curriculum: {levels: 2, low: 0.2}, solve_rate: {drop: true}}",
		"schedule: synchronous\nrollout: {oversample: 2, redundancy: 65535}", "preset: synchronous\nsync: {every: 3}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := Parse("fuzz", []byte(text))
		if err != nil {
			return
		}
		c, err := raw.Resolve()
		if err != nil {
			return
		}
		if err := c.LoopConfig().WithDefaults().Validate(); err != nil {
			t.Errorf("the loop refuses a document that resolves: %v", err)
		}
		again, err := Parse("again", c.YAML())
		if err != nil || !again.Equal(c) {
			t.Errorf("changes in print (%v):\n%s\nparsed:\n%s", err, c.YAML(), again.YAML())
		}
	})
}

// FuzzSet: no override makes Set panic.
func FuzzSet(f *testing.F) {
	for _, seed := range []string{"train.batch=64", "engines.0.slots=1", "engines=[]", "modelled.length.groups=[[1]]", "a=b", "=", "seed=null", "rollout={seed: 1}", "engines.9.slots=1", "a.b.c=1", "modelled.length.groups.0=3", "preset=skyrl", "queue.rollout.n=4", "queue={policy: replay, capacity: 128}"} {
		f.Add(seed)
	}
	base, err := Load("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, override string) {
		changed, err := base.Set(override)
		if err != nil {
			return
		}
		if c, err := changed.Resolve(); err == nil && loop.Config.Validate(c.LoopConfig()) != nil {
			t.Errorf("the loop refuses a document that resolves: %v", c.LoopConfig().Validate())
		}
	})
}

// Nesting is bounded before the parser, whose memory grows with its square.
func TestNestingIsBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 200_000), strings.Repeat("{a: ", 60_000), strings.Repeat("- ", 100_000), strings.Repeat("? ", 1000)} {
		if _, err := Parse("run.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "levels deep (allowed: at most 64") {
			t.Errorf("%.10s…: got %v", text, err)
		}
	}
	if _, err := Parse("run.yaml", make([]byte, documentBytesMax+1)); err == nil || !strings.Contains(err.Error(), "is too long") {
		t.Errorf("a large document: got %v", err)
	}
	wide := "modelled: {length: {groups: [" + strings.Repeat("[1],", 1000) + "]}}"
	if _, err := Parse("run.yaml", []byte(wide)); err != nil {
		t.Errorf("many groups are not deep: %v", err)
	}
}

// Where engines are servers, the printed document has no keys of the embedded task and model that nobody changed. It
// is the same whether an earlier version printed them.
func TestTheEmbeddedTaskIsNotPrintedBesideServers(t *testing.T) {
	const servers = "engines: [{kind: vllm, name: a, url: \"http://127.0.0.1:1\", slots: 4}]\ntrainer: {kind: remote}\n"
	resolved := func(text string) Config {
		t.Helper()
		c, err := Parse("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c.WithDefaults()
	}
	plain := resolved(servers)
	text := string(plain.YAML())
	for _, key := range []string{"task:", "letters_min:", "letters_max:", "held_out:", "supervised_steps:", "layers:", "width:", "heads:", "context:"} {
		if strings.Contains(text, key) {
			t.Errorf("%s is printed:\n%s", key, text)
		}
		if !strings.Contains(string(resolved("").YAML()), key) {
			t.Errorf("%s of embedded engines is not printed", key)
		}
	}
	if earlier := resolved(servers + "environment: {task: reverse, letters_min: 2, held_out: 1000}\nmodel: {layers: 2}\n"); !earlier.Equal(plain) {
		t.Errorf("a document with the defaults written out differs:\n%s", earlier.YAML())
	}
	if changed := string(resolved(servers + "environment: {letters_min: 3}\n").YAML()); !strings.Contains(changed, "letters_min: 3") {
		t.Errorf("a key that was changed is not printed:\n%s", changed)
	}
}
