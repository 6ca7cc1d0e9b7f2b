package payload_test

import (
	"encoding/binary"
	"math"
	"reflect"
	"testing"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/payload"
)

func sample(tokens int, step int32) live.Sample {
	s := live.Sample{ID: live.RolloutID{Group: 5, Sample: 2, Attempt: 3}, Reward: -0.5, Prompt: "p", Answer: "ä", Resumes: []live.ResumePoint{{At: 1, Version: 2}}}
	for i := range tokens {
		s.Tokens = append(s.Tokens, int32(i)*step)
		s.LossMask = append(s.LossMask, uint8(i&1))
		s.Logprobs = append(s.Logprobs, -float32(i))
		s.Versions = append(s.Versions, loop.Version(int64(i)-1))
	}
	return s
}

// Numbers of every length come back, and a body cut anywhere is refused.
func TestRoundTrip(t *testing.T) {
	for _, step := range []int32{1, -1, 63, 64, 8191, 8192, 1 << 20, -(1 << 21), math.MaxInt32 / 300} {
		want := sample(300, step)
		body := payload.Append(nil, &want)
		got, err := payload.Decode(body)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d comes back changed: %v", step, err)
		}
		if id, err := payload.DecodeID(body); err != nil || id != want.ID {
			t.Errorf("identity %v: %v", id, err)
		}
	}
	s := sample(40, 1<<13)
	body := payload.Append(nil, &s)
	for cut := range body {
		if _, err := payload.Decode(body[:cut]); err == nil && cut != len(body)-3 { // without resumes, as it once was
			t.Fatalf("a body of %d of %d bytes was taken", cut, len(body))
		}
	}
	// The form is the one that runs have on disk: plain varints.
	_, n := binary.Varint(body)
	_, m := binary.Varint(body[n:])
	_, k := binary.Varint(body[n+m:])
	if count, _ := binary.Uvarint(body[n+m+k:]); count != 40 {
		t.Errorf("%d tokens stand behind the identity, want 40", count)
	}
}

func BenchmarkAppend(b *testing.B) {
	s := sample(22000, 5)
	var dst []byte
	for b.Loop() {
		dst = payload.Append(dst[:0], &s)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkDecode(b *testing.B) {
	s := sample(22000, 5)
	body := payload.Append(nil, &s)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := payload.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}
