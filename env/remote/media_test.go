package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// imageAt is an image of one token.
func imageAt(offset int32, name byte) media.Item {
	return media.Item{Modality: media.Image, Hash: media.Hash{name}, Offset: offset, Length: 1, Data: []byte{name}}
}

// The same ids after another image are another history, and begin another branch: a sample has the images of each.
func TestTurnsWithImages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		for _, turn := range []struct {
			prompt           []int32
			media            []media.Item
			branch, branches int
		}{
			{[]int32{20, 29}, []media.Item{imageAt(1, 'a')}, 0, 1},                                      // answered with 1 2
			{[]int32{20, 29, 1, 2, 29}, []media.Item{imageAt(1, 'a'), imageAt(4, 'b')}, 0, 1},           // with 2 3
			{[]int32{20, 29, 1, 2, 29, 2, 3, 21}, []media.Item{imageAt(1, 'a'), imageAt(4, 'c')}, 1, 2}, // another image
			{[]int32{20, 29, 1, 2, 29, 2, 3, 21}, nil, 2, 3},                                            // none
			{[]int32{20, 29, 1, 2, 29, 2, 3, 21}, []media.Item{imageAt(1, 'a'), imageAt(4, 'b')}, 0, 3}, // the first
		} {
			reply, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: turn.prompt, Media: turn.media}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if reply.Branch != turn.branch || reply.Branches != turn.branches {
				t.Errorf("%v with %d images is added to branch %d of %d, want %d of %d", turn.prompt, len(turn.media), reply.Branch, reply.Branches, turn.branch, turn.branches)
			}
		}
		if _, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{1, 2}, Media: []media.Item{imageAt(5, 'a')}}, nil); err == nil {
			t.Error("an image beyond the prompt is taken")
		}
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		<-p.done
		s := p.sample
		var got []int32
		for i := range s.Media {
			if got = append(got, s.Media[i].Offset); s.Tokens[s.Media[i].Offset] != 29 {
				t.Errorf("image %d stands at %d, before token %d", i, s.Media[i].Offset, s.Tokens[s.Media[i].Offset])
			}
		}
		if second := s.Breaks[0]; !slices.Equal(got, []int32{1, 4, second + 1, second + 4}) || s.Media[3].Hash != (media.Hash{'c'}) {
			t.Errorf("images at %v of %v, breaks %v", got, s.Tokens, s.Breaks)
		}
	})
}

// TestRestoredImagesAreShared: rollouts that are restored together hold an image once. Nothing of it stays where they have ended.
func TestRestoredImagesAreShared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		ids := []port.RolloutID{id(1, 0, 1), id(1, 1, 1)}
		for _, id := range ids {
			p := play(t, e, id)
			c := claim(t, e, "w")
			if _, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20, 29}, Media: []media.Item{imageAt(1, 'a')}}, nil); err != nil {
				t.Fatal(err)
			}
			p.stop(port.ErrEnded)
		}
		synctest.Wait()
		e = open(t, keeping(kept))
		var bytes []*byte
		for _, id := range ids {
			e.Restoring(port.RolloutRequest{ID: id, Level: 2})
		}
		for _, id := range ids {
			e.Restore(port.RolloutRequest{ID: id, Level: 2})
			bytes = append(bytes, &e.sessions[claimID(id)].record.branches[0].media[0].Data[0])
		}
		if bytes[0] != bytes[1] {
			t.Error("two rollouts have an image of their own")
		}
		if len(e.restoring.bytes) > 0 {
			t.Errorf("%d images are held for nobody", len(e.restoring.bytes))
		}
	})
}

// TestImagesAreKept: with the turn that they first stand in, and once for all of the rollout. A repeated call has the same images.
// Turns whose images have no bytes are another attempt.
func TestImagesAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		look := func(images []media.Item, prompt ...int32) protocol.TurnReply {
			reply, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: prompt, Media: images}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		look([]media.Item{imageAt(1, 'a')}, 20, 29)                            // answered with 1 2
		look([]media.Item{imageAt(1, 'a'), imageAt(4, 'b')}, 20, 29, 1, 2, 29) // with 2 3
		look([]media.Item{imageAt(0, 'b'), imageAt(1, 'a')}, 29, 29)           // another branch
		entries, err := kept.ReadTurns(id(1, 0, 1))
		if err != nil || len(entries) != 4 {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for i, want := range []string{"a", "b", ""} {
			var k struct{ Turn, Seen *keptTurn }
			if err := json.Unmarshal(entries[i+1], &k); err != nil || k.Turn != nil {
				t.Fatal(err)
			}
			got := ""
			for _, m := range k.Seen.Media {
				got += string(m.Data)
			}
			if got != want {
				t.Errorf("turn %d has the bytes of %q, want %q", i, got, want)
			}
		}
		p.stop(port.ErrEnded)
		synctest.Wait()

		e = open(t, keeping(kept))
		p, _ = again(t, e, id(1, 0, 1))
		if reply := look([]media.Item{imageAt(0, 'a'), imageAt(1, 'b')}, 29, 29); reply.Branches != 3 {
			t.Errorf("other images are answered by what was kept: %+v", reply)
		}
		p.stop(port.ErrEnded)
		synctest.Wait()

		e = open(t, keeping(kept))
		p, _ = again(t, e, id(1, 0, 1))
		if reply := look([]media.Item{imageAt(0, 'a'), imageAt(1, 'b')}, 29, 29); reply.Branches != 3 || len(p.slot.asked) != 4 {
			t.Errorf("a call that is repeated: %+v", reply)
		}
		finish(t, e, p, c.ID)

		kept.all[id(1, 0, 1)] = [][]byte{entries[0], bytes.Replace(entries[1], []byte(`"YQ=="`), []byte("null"), 1)}
		e = open(t, keeping(kept))
		p, _ = again(t, e, id(1, 0, 1))
		if <-p.done; !errors.Is(p.err, port.ErrUnkept) || !strings.Contains(p.err.Error(), "no turn has its bytes") {
			t.Errorf("without the bytes: %v", p.err)
		}
	})
}
