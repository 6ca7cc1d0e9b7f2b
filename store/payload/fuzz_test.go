package payload

import (
	"bytes"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// FuzzDecode: what verifies and still is no payload of this version is refused, not guessed at. What is read fits
// together, and says the same when it is written again.
func FuzzDecode(f *testing.F) {
	s := port.Sample{ID: port.RolloutID{Group: 3, Sample: 1, Attempt: 2}, Tokens: []int32{1, 2, 3}, LossMask: []uint8{0, 1, 1}, Logprobs: []float32{0, -1, -0.5}, Versions: []loop.Version{-1, 4, 5}, Reward: 1}
	whole := Append(nil, &s)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		sample, err := Decode(body)
		if err != nil {
			return
		}
		if n := len(sample.Tokens); n != len(sample.Versions) || n != len(sample.Logprobs) || n > len(body) {
			t.Errorf("decoded %d tokens with %d versions and %d log-probs from %d bytes", n, len(sample.Versions), len(sample.Logprobs), len(body))
		}
		again := Append(nil, &sample)
		twice, err := Decode(again)
		if err != nil || !bytes.Equal(Append(nil, &twice), again) {
			t.Errorf("written again it is another: %v", err)
		}
	})
}
