package cell

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// blobMap keeps blobs in memory, and counts puts.
type blobMap struct {
	mu   sync.Mutex
	data map[string][]byte
	puts int
}

func blobKey(id port.RolloutID, number int32) string { return fmt.Sprint(id, number) }

func (b *blobMap) PutBlob(id port.RolloutID, number int32, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data[blobKey(id, number)] != nil {
		return errors.New("the number is used")
	}
	b.puts++
	b.data[blobKey(id, number)] = data
	return nil
}

func (b *blobMap) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	data := b.data[blobKey(id, number)]
	if int64(len(data)) < offset+int64(len(dst)) || data == nil {
		return port.ErrNoBlob
	}
	copy(dst, data[offset:])
	return nil
}

func imageOf(text string) media.Item {
	return media.Item{Modality: media.Image, Hash: sha256.Sum256([]byte(text)), Data: []byte(text), Size: int64(len(text)), Length: 1}
}

// An image is stored once for the rollouts of a group, at the same time and after a restart, and once more for another group.
func TestMediaAreStoredOnce(t *testing.T) {
	blobs := &blobMap{data: map[string][]byte{}}
	for range 2 { // the second time as another process, which knows nothing
		var kept keptMedia
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for _, text := range []string{"one", "another"} {
					m := imageOf(text)
					number, err := kept.put(blobs, 1, &m)
					if err != nil {
						t.Error(err)
					}
					got := make([]byte, len(text))
					if err := blobs.ReadBlob(port.GroupMedia(1), number, 0, got); err != nil || string(got) != text {
						t.Errorf("%q, %v lies under the number of %q", got, err, text)
					}
				}
			})
		}
		all.Wait()
	}
	if blobs.puts != 2 {
		t.Errorf("two images of a group are stored %d times", blobs.puts)
	}
	var kept keptMedia
	m := imageOf("one")
	if _, err := kept.put(blobs, 2, &m); err != nil || blobs.puts != 3 {
		t.Errorf("%v, %d blobs", err, blobs.puts)
	}
	// Two images whose hashes begin alike get numbers of their own.
	a, b := imageOf("one"), imageOf("two")
	b.Hash = a.Hash
	b.Hash[31]++
	first, err := kept.put(blobs, 3, &a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := kept.put(blobs, 3, &b)
	if err != nil || first == second {
		t.Errorf("numbers %d and %d, %v", first, second, err)
	}
}

// An engine that takes no media is not asked with any: it would leave them out.
func TestNoEngineIsHandedMediaUnasked(t *testing.T) {
	asked := false
	e := blindEngine{&asked}
	m := imageOf("one")
	_, err := generate(t.Context(), e, port.GenerateRequest{Prompt: []int32{1}, Media: []media.Item{m}})
	if !errors.Is(err, port.ErrMedia) || asked {
		t.Errorf("asked %v, %v", asked, err)
	}
	if _, err := generate(t.Context(), seeingEngine{e}, port.GenerateRequest{Media: []media.Item{m}}); err != nil || !asked {
		t.Errorf("one that takes them: asked %v, %v", asked, err)
	}
	m.Modality = "video"
	if _, err := generate(t.Context(), seeingEngine{e}, port.GenerateRequest{Media: []media.Item{m}}); !errors.Is(err, port.ErrMedia) {
		t.Errorf("a video: %v", err)
	}
}

type blindEngine struct{ asked *bool }

func (blindEngine) Name() string { return "blind" }
func (blindEngine) Slots() int   { return 1 }
func (e blindEngine) Generate(context.Context, port.GenerateRequest) (port.Generation, error) {
	*e.asked = true
	return port.Generation{}, nil
}
func (blindEngine) Load(context.Context, loop.Version) error         { return nil }
func (blindEngine) Switch(context.Context, loop.Version, bool) error { return nil }
func (blindEngine) Close() error                                     { return nil }

type seeingEngine struct{ blindEngine }

func (seeingEngine) Sees(modality string) error {
	if modality != media.Image {
		return port.ErrMedia
	}
	return nil
}

func TestCheckMedia(t *testing.T) {
	place := func(offset, length int32) media.Item {
		m := imageOf("one")
		m.Offset, m.Length = offset, length
		return m
	}
	without := place(1, 1)
	without.Data = nil
	for _, c := range []struct {
		items []media.Item
		want  string
	}{
		{[]media.Item{place(1, 2), place(5, 1)}, ""},
		{[]media.Item{place(3, 1)}, "sampled"},
		{[]media.Item{place(2, 4)}, "over the end"},
		{[]media.Item{place(6, 3)}, "among 7 tokens"},
		{[]media.Item{without}, "without its bytes"},
	} {
		s := port.Sample{Tokens: make([]int32, 7), LossMask: []uint8{0, 0, 0, 1, 0, 0, 1}, Breaks: []int32{4}, Media: c.items}
		if c.want == "over the end" {
			s.LossMask = make([]uint8, 7)
		}
		if err := checkMedia(&s); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.items, err, c.want)
		}
	}
}
