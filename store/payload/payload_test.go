package payload_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

func sample(tokens int, step int32) port.Sample {
	s := port.Sample{ID: port.RolloutID{Group: 5, Sample: 2, Attempt: 3}, Reward: -0.5, Prompt: "p", Answer: "ä", Resumes: []port.ResumePoint{{At: 1, Version: 2}}}
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

// drawSample is a sample of any shape that one can have, and some that none has.
func drawSample(rng *rand.Rand) port.Sample {
	text := func() string { return strings.Repeat("ä", rng.IntN(4)) }
	s := sample(rng.IntN(200), int32(rng.Uint32()>>rng.IntN(32)))
	s.ID = port.RolloutID{Group: loop.GroupID(rng.Int64()), Sample: int32(rng.Uint32()), Attempt: int32(rng.Uint32())}
	s.Reward, s.Exact, s.Truncated, s.Derived = math.Float32frombits(rng.Uint32()&^(0xff<<23)), rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0
	s.Prompt, s.Response, s.Answer = text(), text(), text()
	s.GenerateNS, s.EnvironmentNS = rng.Int64()>>rng.IntN(64), rng.Int64()>>rng.IntN(64)
	s.Resumes = nil
	for range rng.IntN(4) {
		s.Resumes = append(s.Resumes, port.ResumePoint{At: int32(rng.Uint32()), Version: loop.Version(rng.Int64())})
	}
	for range rng.IntN(5) {
		s.Breaks = append(s.Breaks, int32(rng.Uint32()>>rng.IntN(32)))
	}
	for i := range rng.IntN(3) {
		c := channel.Channel{Header: channel.Header{Name: text(), DType: channel.U16, Ragged: rng.IntN(2) == 0, Align: channel.Passes}, Sequence: int32(i)}
		for range rng.IntN(3) {
			c.Row = append(c.Row, rng.IntN(300))
			c.Parts = append(c.Parts, channel.Part{Start: int32(rng.Uint32()), Rows: 7, Blob: int32(i), Skip: int32(rng.IntN(9))})
		}
		s.Channels = append(s.Channels, c)
	}
	for range rng.IntN(3) {
		s.Agents = append(s.Agents, port.Agent{Name: text(), Untrained: rng.IntN(2) == 0})
	}
	for i := range rng.IntN(4) {
		m := media.Item{Modality: media.Image, Hash: media.Hash{byte(rng.Uint32())}, Type: text(), Size: rng.Int64(), Offset: int32(rng.Uint32()), Length: int32(i), Blob: int32(rng.Uint32())}
		if rng.IntN(2) == 0 {
			m.Processor = media.Processor{Name: text(), Revision: text(), Settings: text()}
		}
		s.Media = append(s.Media, m)
	}
	return s
}

// Whatever a sample holds comes back, and one that lost its end does not pass for another.
func TestRandomRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for i := range 2000 {
		want := drawSample(rng)
		body := payload.Append(nil, &want)
		// A sample of no token comes back with empty slices, where nil stood.
		for _, slice := range []any{&want.Tokens, &want.LossMask, &want.Logprobs, &want.Versions} {
			if v := reflect.ValueOf(slice).Elem(); v.IsNil() {
				v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			}
		}
		got, err := payload.Decode(body)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("draw %d comes back as %+v, %v: want %+v", i, got, err, want)
		}
		if len(want.Breaks) == 0 {
			continue
		}
		for cut := range body {
			if cut%37 != 0 && cut < len(body)-30 {
				continue
			}
			if _, err := payload.Decode(body[:cut]); err == nil {
				t.Fatalf("draw %d, with breaks, was taken when cut to %d of %d bytes", i, cut, len(body))
			}
		}
	}
}

// Payloads of earlier versions are read as they were written: without breaks, and without resumes.
func TestOldPayloads(t *testing.T) {
	s := sample(3, 70)
	body := payload.Append(nil, &s)
	const old = "0a0406" + "03" + "00" + "8c01" + "9802" + "000100" + "00000080" + "000080bf" + "000000c0" + "010002" + "000000bf" + "00" + "0170" + "00" + "02c3a4" + "00" + "00"
	for _, tail := range []string{"01" + "02" + "04", ""} {
		raw, err := hex.DecodeString(old + tail)
		if err != nil {
			t.Fatal(err)
		}
		want := s
		if tail == "" {
			want.Resumes = nil
		} else if !bytes.Equal(body, raw) {
			t.Errorf("a sample of one sequence is written as\n%x, and it was\n%x", body, raw)
		}
		if got, err := payload.Decode(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read as %+v, %v: want %+v", got, err, want)
		}
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
