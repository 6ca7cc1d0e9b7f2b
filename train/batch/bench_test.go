package batch

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// large is a batch of about 64 MB: 1,024 rollouts of 4,800 tokens.
func large() port.Batch {
	b := port.Batch{Lease: 1, Attempt: 1, Version: 12}
	rng := rand.New(rand.NewPCG(1, 1))
	for g := range 128 {
		group := port.Group{ID: loop.GroupID(g + 1), StartVersion: 10, ReadyVersion: 11, Rollouts: 8}
		for i := range 8 {
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(i), Attempt: 1}, Reward: rng.Float32()}
			for k := range 4800 {
				mask, logprob, version := uint8(0), float32(0), loop.NoVersion
				if k >= 400 {
					mask, logprob, version = 1, -rng.Float32(), 10
				}
				s.Tokens, s.LossMask = append(s.Tokens, rng.Int32N(vocabulary)), append(s.LossMask, mask)
				s.Logprobs, s.Versions = append(s.Logprobs, logprob), append(s.Versions, version)
			}
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// copier is a receiver that takes every byte once, as a socket does.
type copier struct {
	to []byte
	n  int
}

func (c *copier) Write(p []byte) (int, error) {
	c.n += copy(c.to[c.n:], p)
	return len(p), nil
}

// BenchmarkWriteTo packs a batch of 64 MB, by turns with a plain copy of as many bytes; ratio is
// the median time of the copies over that of the packing.
func BenchmarkWriteTo(b *testing.B) {
	p, err := New(large(), Options{Vocabulary: vocabulary})
	if err != nil {
		b.Fatal(err)
	}
	body, err := p.Share(0, 1, 60)
	if err != nil {
		b.Fatal(err)
	}
	to := &copier{to: make([]byte, body.Size())}
	from := bytes.Repeat([]byte("headway "), int(body.Size()/8)+1) // untouched memory would be one page
	b.SetBytes(body.Size())
	b.ReportAllocs()
	var packs, copies []float64
	for b.Loop() {
		began := time.Now()
		to.n = 0
		if _, err := body.WriteTo(to); err != nil {
			b.Fatal(err)
		}
		packs = append(packs, time.Since(began).Seconds())
		began = time.Now()
		copy(to.to, from)
		copies = append(copies, time.Since(began).Seconds())
	}
	slices.Sort(packs)
	slices.Sort(copies)
	b.ReportMetric(float64(body.Size())/packs[len(packs)/2]/1e6, "pack-MB/s")
	b.ReportMetric(float64(body.Size())/copies[len(copies)/2]/1e6, "copy-MB/s")
	b.ReportMetric(copies[len(copies)/2]/packs[len(packs)/2], "ratio")
}

// BenchmarkNew is the check of every token and the advantages.
func BenchmarkNew(b *testing.B) {
	batch := large()
	b.SetBytes(64 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(batch, Options{Vocabulary: vocabulary}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	p, err := New(large(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	body, err := p.Share(0, 1, 60)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := body.Bytes()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(body.Size())
	for b.Loop() {
		if _, err := batchtest.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}
