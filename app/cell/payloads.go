package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/jetstream"
)

const (
	// rowsName is the directory in the cell's own where rows and media lie until their rollout ends.
	rowsName = "rows"
	// sending is how many rollouts send theirs at once: each holds one blob in memory.
	sending = 4
)

// payloads keeps what rollouts of the cell have made. Rows of side channels and media lie on the cell's disk, and go to the run's
// servers with the payload that names them: nothing is sent of a rollout that ends without one. It implements port.Blobs,
// port.Referring and port.Turns. Turns are the link's.
type payloads struct {
	port.Turns
	link  *jetstream.Link
	rows  *file.Store
	slots chan struct{}
	// keeps: rows of a rollout stay until its end is in the log, as another process may go on with it.
	keeps bool
}

var (
	_ port.Blobs     = (*payloads)(nil)
	_ port.Referring = (*payloads)(nil)
)

// newPayloads has the rows that a process before has left, if rollouts of it may go on. See retain.
func (c *Cell) newPayloads() (*payloads, error) {
	p := &payloads{Turns: c.wire, link: c.wire, slots: make(chan struct{}, sending), keeps: c.Rules.ResumeRestart}
	dir := filepath.Join(c.own, rowsName)
	var err error
	if !p.keeps {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		p.rows, err = file.OpenBlobs(dir, file.Options{PayloadBytesMax: int64(c.Cfg.Store.NATS.PayloadBytesMax), Always: p.keeps, Logf: c.logf})
	}
	if err != nil {
		return nil, failure.Run("give the cell a disk that it can write, or remove "+dir+": rollouts go on without the rows in it", "cell %s: where rows lie until their rollout ends: %w", c.opt.Cell, err)
	}
	c.OnClose(p.rows.Close)
	return p, nil
}

// retain removes rows of rollouts of which no turn is kept: nobody goes on with them. The link must have its incarnation.
func (p *payloads) retain() {
	p.rows.RetainBlobs(func(id port.RolloutID) bool { return p.KeptTurns(id) > 0 })
}

// PutReferred implements port.Referring.
func (p *payloads) PutReferred(s port.Sample) (reference string, err error) {
	if len(s.Channels)+len(s.Media) > 0 {
		p.slots <- struct{}{}
		err = p.send(&s)
		<-p.slots
	}
	if err != nil {
		return p.link.Unreferred(s.ID), err
	}
	if reference, err = p.link.PutReferred(s); err == nil && !p.keeps {
		_ = p.rows.Discard(s.ID) // the payload is put, whatever becomes of the files
	}
	return reference, err
}

// send sends the blobs that a sample names.
func (p *payloads) send(s *port.Sample) error {
	for i := range s.Channels {
		for _, part := range s.Channels[i].Parts {
			if err := p.sendBlob(s.ID, part.Blob); err != nil {
				return err
			}
		}
	}
	for i := range s.Media {
		if err := p.sendBlob(port.GroupMedia(s.ID.Group), s.Media[i].Blob); err != nil {
			return err
		}
	}
	return nil
}

// sendBlob sends a blob, unless it is there.
func (p *payloads) sendBlob(id port.RolloutID, number int32) error {
	if p.link.Sent(id, number) {
		return nil
	}
	data, err := p.rows.Blob(id, number)
	if err != nil {
		return fmt.Errorf("rows on the cell's disk: %w", err)
	}
	return p.link.PutBlob(id, number, data)
}

// KeptBlobs implements port.Turns.
func (p *payloads) KeptBlobs(id port.RolloutID) []int32 { return p.rows.KeptBlobs(id) }

// DropTurns implements port.Turns. Rows go with the turns that name them.
func (p *payloads) DropTurns(id port.RolloutID) {
	p.Turns.DropTurns(id)
	_ = p.rows.Discard(id) // a file that cannot be deleted takes room, and no more
}

// PutBlob implements port.Blobs.
func (p *payloads) PutBlob(id port.RolloutID, number int32, data []byte) error {
	return p.rows.PutBlob(id, number, data)
}

// ReadBlob implements port.Blobs, for what the cell itself has put.
func (p *payloads) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	return p.rows.ReadBlob(id, number, offset, dst)
}

// PutSample implements cell.Payloads.
func (p *payloads) PutSample(s port.Sample) error {
	_, err := p.PutReferred(s)
	return err
}

// Discard implements cell.Payloads. The writer drops what was sent, by what the log says.
func (p *payloads) Discard(id port.RolloutID) error { return p.rows.Discard(id) }

// Forget implements cell.Payloads.
func (p *payloads) Forget(group loop.GroupID) error {
	return errors.Join(p.link.Forget(group), p.rows.Forget(group))
}
