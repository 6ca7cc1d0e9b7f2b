package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Planning a written document recommends what was written, and it keeps what the
// user gave.
func TestPlanAgainFromWhatItWrote(t *testing.T) {
	skipShort(t)
	for name, overrides := range map[string][]string{
		"bounded": {"search.policies=[bounded]", "modelled.prefill={tokens_per_s: 40000, mode: engine}", "modelled.decode_curve=[{active: 1, tokens_per_s: 200}, {active: 32, tokens_per_s: 120}]"},
		"slots":   {"search.policies=[drop]", "modelled.prefill={tokens_per_s: 4000}"},
	} {
		arguments := []string{document(t, planDocument), "--set", "modelled.prompt_tokens=800", "--set", "search.batch_min=128", "--set", "search.reward_correlation=0.3", "--set", "search.finalists=1"}
		if os.Getenv("HEADWAY_LONG") == "" { // else holds and choices are searched
			overrides = append(overrides, "search.hold=[0]", "search.select=[oldest]")
		}
		for _, override := range overrides {
			arguments = append(arguments, "--set", override)
		}
		written := filepath.Join(t.TempDir(), "best.yaml")
		first := planned(t, append(arguments, "--write", written)...)
		again := planned(t, written)
		for _, key := range []string{"rollout_gpus", "train_gpus", "slots_per_replica", "batch_rollouts", "policy"} {
			if have, want := fmt.Sprint(walk(t, again, "recommended", key)), fmt.Sprint(walk(t, first, "recommended", key)); have != want {
				t.Errorf("%s: %s %s became %s", name, key, want, have)
			}
		}
		text, err := os.ReadFile(written)
		if err != nil {
			t.Fatal(err)
		}
		for _, kept := range []string{"prompt_tokens: 800", "batch_min: 128", "reward_correlation: 0.3"} {
			if !strings.Contains(string(text), kept) {
				t.Errorf("%s: %q is not in\n%s", name, kept, text)
			}
		}
		if strings.Contains(string(text), "prompt_tokens: 512") {
			t.Errorf("%s: another prompt was written", name)
		}
		if name == "bounded" && !strings.Contains(string(text), "prefill_tokens_per_s: 40000") || name == "slots" && !strings.Contains(string(text), "tokens_per_s: 4000\n") {
			t.Errorf("%s: the prefill speed is not in\n%s", name, text)
		}
	}
}
