package enginetest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
)

// modelDirectory makes a directory that looks like a model to whoever checks that it is whole; the
// policy's weights are its name.
func modelDirectory(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	header := `{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	file := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
	file = append(file, name[len(name)-1], 0, 0, 0)
	for path, content := range map[string][]byte{"config.json": []byte("{}"), "model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, path), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The suite passes on servers that can be computed by hand, by both of vLLM's ways: what it does
// on real ones it does here.
func TestConformanceOfPolicy(t *testing.T) {
	for name, spans := range map[string]bool{"generate": true, "completions": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			var urls []string
			for range 2 {
				s := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 40},
					Context: 128, Weights: "m0", Spans: spans, Step: 100 * time.Microsecond})
				t.Cleanup(s.Close)
				urls = append(urls, s.URL())
			}
			report := enginetest.Run(t, enginetest.Subject{
				URL: urls[0], Peer: urls[1], Dialect: func() upstream.Dialect { return vllm.Dialect{} }, Delivery: upstream.DeliveryDisk,
				Weights:  [2]string{modelDirectory(t, "m0"), modelDirectory(t, "m1")},
				Requests: 100, Slots: 8, Switches: 3, Seed: 1,
				// A token that lies unread for longer counts as of the new weights, and this process may not run for long.
				Quiet: time.Second,
			})
			for _, c := range report {
				t.Logf("%s: %d", c.What, c.Count)
			}
		})
	}
}
