package remote

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// blobs has every byte of every blob, as 0.
type blobs struct{ port.Blobs }

func (blobs) ReadBlob(_ port.RolloutID, _ int32, _ int64, dst []byte) error {
	clear(dst)
	return nil
}

// A rank fetches a channel of the share that it holds since before a restart: it gets its own rows, and not the whole
// batch's, though no rank has leased from the new process.
func TestChannelOfAShareFromBeforeARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Blobs = blobs{} })
		r.must(r.write(0, 0))
		r.must(r.Restore(t.Context(), 0, 0))
		b := groups(5, 2, 0, 3)
		for g := range b.Groups {
			for i := range b.Groups[g].Samples {
				b.Groups[g].Samples[i].Channels = []channel.Channel{{Header: channel.Header{Name: "x-a", DType: channel.U8, Align: channel.Passes}, Parts: []channel.Part{{Rows: 2}}}}
			}
		}
		r.train(b)
		synctest.Wait()
		fetch := func(rank, world int) (protocol.Body, error) {
			return r.Channel(t.Context(), 5, "x-a", protocol.ChannelRequest{Trainer: "a", Attempt: 1, Rank: rank, WorldSize: world})
		}
		for rank := range 2 {
			body, err := fetch(rank, 2)
			r.must(err)
			want, err := r.offer.batch.Channel(blobs{}, "x-a", rank, 2)
			r.must(err)
			if body.Size() != want.Size() {
				t.Errorf("rank %d gets %d bytes, its share has %d", rank, body.Size(), want.Size())
			}
		}
		r.lease("a", 1, 2)
		_, err := fetch(0, 3)
		r.refused(err, protocol.CodeConflict, "divided over 2")
		_, err = fetch(2, 0)
		r.refused(err, protocol.CodeConflict, "divided over 2")
	})
}

// A run asks for a channel, and no engine has said a row of it: the trainer gets the channel without rows, and the status
// counts what lacks.
func TestChannelWithoutARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := channel.Header{Name: "x-a", DType: channel.U8, Row: []int{3, 2}, Align: channel.Passes}
		r := newRig(t, func(o *Options) {
			o.Blobs, o.Channels = blobs{}, func() []channel.Header { return []channel.Header{asked} }
		})
		r.must(r.write(0, 0))
		r.must(r.Restore(t.Context(), 0, 0))
		r.train(groups(5, 2, 0, 3))
		synctest.Wait()
		l := r.lease("a", 0, 1)
		body, err := r.Channel(t.Context(), l.Lease, asked.Name, protocol.ChannelRequest{Trainer: "a", Attempt: l.Attempt, WorldSize: 1})
		r.must(err)
		if body.Size() == 0 {
			t.Error("a body without its header")
		}
		all := r.Status().Channels
		if len(all) != 1 || !all[0].Same(asked) || all[0].Rows != 0 || all[0].Absent == 0 {
			t.Errorf("the status says %+v", all)
		}
	})
}

// gone has no blob.
type gone struct{ port.Blobs }

func (gone) ReadBlob(port.RolloutID, int32, int64, []byte) error { return port.ErrNoBlob }

// Rows that the store has lost are counted in the status, and the log names the first rollout that lacks them.
func TestLostRowsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := ""
		r := newRig(t, func(o *Options) {
			o.Blobs, o.Logf = gone{}, func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
		})
		r.must(r.write(0, 0))
		r.must(r.Restore(t.Context(), 0, 0))
		b := groups(5, 1, 0, 2)
		for g := range b.Groups {
			b.Groups[g].Samples[1].Channels = []channel.Channel{{Header: channel.Header{Name: "x-a", DType: channel.U8, Align: channel.Passes}, Parts: []channel.Part{{Rows: 2}}}}
		}
		r.train(b)
		synctest.Wait()
		l := r.lease("a", 0, 1)
		for range 2 {
			_, err := r.Channel(t.Context(), l.Lease, "x-a", protocol.ChannelRequest{Trainer: "a", Attempt: l.Attempt, WorldSize: 1})
			r.must(err)
		}
		if all := r.Status().Channels; len(all) != 1 || all[0].Rows != 4 || all[0].Lost != 4 {
			t.Errorf("the status says %+v, want 4 rows and 4 lost", all)
		}
		if strings.Count(said, "are lost") != 1 || !strings.Contains(said, "g1-s1-a1") {
			t.Errorf("the log says %q", said)
		}
	})
}
