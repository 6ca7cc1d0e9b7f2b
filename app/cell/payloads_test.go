package cell

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/storetest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writerAndCell are the store of a run's writer, and a cell that is linked to it.
func writerAndCell(t testing.TB) (*jetstream.Store, *Cell) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, JetStreamMaxStore: 1 << 50})
	must(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	o := jetstream.Options{URL: srv.ClientURL(), Run: "r", Logf: t.Logf, CellTurns: true}
	s, err := jetstream.Open(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, _, err = s.Acquire(t.Context(), "a test")
	must(t, err)
	line, _ := storetest.Header(t)
	must(t, s.Append([][]byte{line}))
	c := &Cell{own: t.TempDir()}
	c.Parts = &parts.Parts{Cfg: config.Config{}.WithDefaults()}
	c.wire, err = jetstream.OpenLink(t.Context(), o, "b")
	must(t, err)
	t.Cleanup(func() { _ = c.wire.Close() })
	_, _, err = c.wire.Begin(t.Context())
	must(t, err)
	_, err = c.wire.Incarnate(t.Context())
	must(t, err)
	return s, c
}

// TestRowsGoWithTheirPayload: rows and media lie on the cell's disk until the payload that names them is put. Then the writer has
// them, and the disk has the media of groups that live alone.
func TestRowsGoWithTheirPayload(t *testing.T) {
	s, c := writerAndCell(t)
	p, err := c.newPayloads()
	must(t, err)
	id, group := port.RolloutID{Group: 1, Attempt: 1}, port.GroupMedia(1)
	sample := storetest.Sample(id, 5)
	sample.Channels = []channel.Channel{{Header: channel.Header{Name: channel.RoutedExperts}, Parts: []channel.Part{{Rows: 4, Blob: 0}, {Start: 4, Rows: 4, Blob: 1}}}}
	sample.Media = []media.Item{{Modality: media.Image, Blob: 9}}
	blobs := map[int32][]byte{0: storetest.Blob(id, 0, 70_000), 1: storetest.Blob(id, 1, 1<<20), 9: storetest.Blob(group, 9, 300)}
	of := func(number int32) port.RolloutID {
		if number == 9 {
			return group
		}
		return id
	}
	reads := func(from port.Blobs, number int32) error {
		got := make([]byte, len(blobs[number]))
		err := from.ReadBlob(of(number), number, 0, got)
		if err == nil && !bytes.Equal(got, blobs[number]) {
			t.Errorf("blob %d is another", number)
		}
		return err
	}
	for number, data := range blobs {
		must(t, p.PutBlob(of(number), number, data))
		must(t, reads(p, number))
		if err := reads(s, number); !errors.Is(err, port.ErrNoBlob) {
			t.Errorf("the writer has blob %d before its payload: %v", number, err)
		}
	}
	reference, err := p.PutReferred(sample)
	must(t, err)
	must(t, s.Refer("b", id, reference))
	for number := range blobs {
		must(t, reads(s, number))
		if err := reads(p, number); (number == 9) != (err == nil) {
			t.Errorf("blob %d on the cell's disk: %v", number, err)
		}
	}
	must(t, p.Forget(1))
	if err := reads(p, 9); !errors.Is(err, port.ErrNoBlob) {
		t.Errorf("the medium of a group that has ended, on the cell's disk: %v", err)
	}
	sample.ID.Sample = 1
	if _, err := p.PutReferred(sample); err == nil || !strings.Contains(err.Error(), "rows on the cell's disk") || !errors.Is(err, port.ErrNoBlob) {
		t.Errorf("a payload whose rows the disk does not have: %v", err)
	}
	must(t, p.PutBlob(id, 2, []byte{1}))
	must(t, p.rows.Close())
	if p, err = c.newPayloads(); err != nil {
		t.Fatal(err)
	}
	if err := p.ReadBlob(id, 2, 0, make([]byte, 1)); !errors.Is(err, port.ErrNoBlob) {
		t.Errorf("the process that goes on has what the one before has left: %v", err)
	}
	if _, ok := port.As[port.Turns](p); !ok {
		t.Error("turns are not kept any more")
	}
	must(t, p.rows.Close())
}

// TestRowsThatSomebodyRemoves: a payload is put though the files of rows before are gone.
func TestRowsThatSomebodyRemoves(t *testing.T) {
	s, c := writerAndCell(t)
	p, err := c.newPayloads()
	must(t, err)
	for n := range int32(3) {
		id := port.RolloutID{Group: 1, Sample: n, Attempt: 1}
		must(t, p.PutBlob(id, 0, storetest.Blob(id, 0, 70_000)))
		must(t, os.RemoveAll(filepath.Join(c.own, rowsName, "state", "blobs")))
		reference, err := p.PutReferred(storetest.Sample(id, 5))
		must(t, err)
		must(t, s.Refer("b", id, reference))
	}
	must(t, p.rows.Close())
}

// TestRowsOutliveTheProcess: where rollouts go on in the cell's next process, rows of those of which a turn is kept are there until
// the end of the rollout is in the log.
func TestRowsOutliveTheProcess(t *testing.T) {
	_, c := writerAndCell(t)
	c.Rules.ResumeRestart = true
	p, err := c.newPayloads()
	must(t, err)
	kept, other := port.RolloutID{Group: 1, Attempt: 1}, port.RolloutID{Group: 1, Sample: 1, Attempt: 1}
	rows := storetest.Blob(kept, 0, 70_000)
	must(t, p.PutBlob(kept, 0, rows))
	must(t, p.PutBlob(other, 0, rows))
	must(t, p.KeepTurn(kept, 0, []byte("a turn")))
	must(t, p.rows.Close())
	_, err = c.wire.Incarnate(t.Context())
	must(t, err)
	p, err = c.newPayloads()
	must(t, err)
	p.retain()
	if there, gone := p.KeptBlobs(kept), p.KeptBlobs(other); !slices.Equal(there, []int32{0}) || len(gone) > 0 {
		t.Errorf("blobs %v of a rollout that goes on, and %v of one of which nothing is kept", there, gone)
	}
	sample := storetest.Sample(kept, 5)
	sample.Channels = []channel.Channel{{Header: channel.Header{Name: channel.RoutedExperts}, Parts: []channel.Part{{Rows: 4, Blob: 0}}}}
	_, err = p.PutReferred(sample)
	must(t, err)
	storetest.CheckBlob(t, p, kept, 0, rows, 0, len(rows)) // the next process may have to send them again
	p.DropTurns(kept)
	if there := p.KeptBlobs(kept); len(there) > 0 {
		t.Errorf("blobs %v of a rollout whose end is in the log", there)
	}
	must(t, p.rows.Close())
}

// BenchmarkRows puts rows of 32,000 tokens of a large mixture of experts in a cell, from its disk to the writer's reference, and then
// as the writer puts its own to the same server. The time of the cell over that of the writer is reported as "slowdown".
func BenchmarkRows(b *testing.B) {
	const rows = 25_000_000
	s, c := writerAndCell(b)
	c.Rules.ResumeRestart = true
	p, err := c.newPayloads()
	must(b, err)
	defer p.rows.Close()
	data := storetest.Blob(port.RolloutID{}, 0, rows)
	var own time.Duration
	b.SetBytes(rows)
	for g := loop.GroupID(1); b.Loop(); g++ {
		id := port.RolloutID{Group: g, Attempt: 1}
		sample := storetest.Sample(id, 5)
		sample.Channels = []channel.Channel{{Header: channel.Header{Name: channel.RoutedExperts}, Parts: []channel.Part{{Rows: 1, Blob: 0}}}}
		must(b, p.PutBlob(id, 0, data))
		reference, err := p.PutReferred(sample)
		must(b, err)
		must(b, s.Refer("b", id, reference))
		p.DropTurns(id)
		b.StopTimer()
		began := time.Now()
		must(b, s.PutBlob(port.RolloutID{Group: g, Sample: 1, Attempt: 1}, 0, data))
		own += time.Since(began)
		must(b, s.Forget(g))
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(own), "slowdown")
}
