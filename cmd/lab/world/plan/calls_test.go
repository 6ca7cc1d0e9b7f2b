package plan

import (
	"strings"
	"testing"
)

// Faults wait for each message of a plane, and for its calls to engines, in a part of the worlds.
func TestCalls(t *testing.T) {
	const seeds = 2000
	met, worlds := map[string]int{}, 0
	for seed := range uint64(seeds) {
		p := Draw(seed)
		if err := p.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sends := map[string]bool{}
		for _, f := range p.Faults {
			if f.Await.Sends != "" {
				sends[f.Await.Sends] = true
			}
		}
		for message := range sends {
			if !strings.HasPrefix(message, "POST ") && p.Embedded {
				t.Errorf("seed %d waits for %s, and its broker is inside its plane", seed, message)
			}
			met[message]++
		}
		if len(sends) > 0 {
			worlds++
		}
	}
	if worlds < seeds/20 || worlds > seeds/3 {
		t.Errorf("faults wait for what planes send in %d of %d worlds", worlds, seeds)
	}
	for _, message := range append([]string{"STREAM.PURGE.headway_world_payload", "POST /v1/completions", "POST /inference/v1/generate"}, messages...) {
		if met[message] < 5 {
			t.Errorf("%q is waited for %d times: %v", message, met[message], met)
		}
	}
}
