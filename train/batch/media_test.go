package batch

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// see puts an image into the prompt of every sequence of a batch: the same for all of a group, whose bytes lie once.
func see(b port.Batch, m memory) {
	for g := range b.Groups {
		group := &b.Groups[g]
		data := bytes.Repeat([]byte{byte(group.ID)}, 40+g)
		item := media.Item{Modality: media.Image, Hash: sha256.Sum256(data), Type: "image/png", Size: int64(len(data)), Length: 1,
			Processor: media.Processor{Name: "tiny", Revision: []string{"", "r"}[g%2]}, Blob: 7}
		_ = m.PutBlob(port.GroupMedia(group.ID), 7, data)
		for i := range group.Samples {
			s := &group.Samples[i]
			for sequence := range s.Sequences() {
				first, _ := s.Sequence(sequence)
				s.Media = media.Moved(s.Media, []media.Item{item}, int32(first))
			}
		}
	}
}

// Every rank is told of the images of its own sequences, and gets the bytes of these alone.
func TestMediaOfShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	b, m := draw(rng, 4, 3, 30), memory{}
	branch(rng, b)
	see(b, m)
	p, err := New(b, Options{Vocabulary: vocabulary})
	if err != nil {
		t.Fatal(err)
	}
	const ranks = 2
	told := 0
	for rank := range ranks {
		share, err := p.Share(rank, ranks, 1)
		if err != nil {
			t.Fatal(err)
		}
		lease := share.Lease()
		sequences := 0
		for _, g := range share.groups {
			for i := range p.groups[g].Samples {
				sequences += p.groups[g].Samples[i].Sequences()
			}
		}
		if len(lease.Media) != sequences {
			t.Fatalf("rank %d of %d sequences is told of %d images", rank, sequences, len(lease.Media))
		}
		for i, said := range lease.Media {
			told++
			if said.Sequence != i || said.Offset != 0 || said.Length != 1 || lease.Processors[said.Processor].Name != "tiny" {
				t.Errorf("rank %d, image %d: %+v of %v", rank, i, said, lease.Processors)
			}
			body, err := p.Medium(m, said.SHA256, rank, ranks)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if _, err := body.WriteTo(&got); err != nil || int64(got.Len()) != said.Size || body.Size() != said.Size {
				t.Errorf("%d bytes, %v: want %d", got.Len(), err, said.Size)
			}
			_, err = p.Medium(m, said.SHA256, 1-rank, ranks)
			if refusal, ok := errors.AsType[*protocol.Refusal](err); !ok || refusal.Code != protocol.CodeNotFound {
				t.Errorf("rank %d gets an image of rank %d: %v", 1-rank, rank, err)
			}
		}
	}
	if told == 0 {
		t.Error("no image was told of")
	}
	if _, err := p.Medium(m, strings.Repeat("g", 64), 0, 1); err == nil {
		t.Error("what is no hash is taken")
	}
}

// Bytes that are others are not handed out.
func TestMediaThatAreDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	b, m := draw(rng, 4, 3, 30), memory{}
	branch(rng, b)
	see(b, m)
	p, err := New(b, Options{Vocabulary: vocabulary})
	if err != nil {
		t.Fatal(err)
	}
	hash := b.Groups[0].Samples[0].Media[0].Hash.String()
	m[key(port.GroupMedia(b.Groups[0].ID), 7)][3]++
	body, err := p.Medium(m, hash, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := body.WriteTo(&got); !errors.Is(err, port.ErrBlobDamaged) || got.Len() > 0 {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}
