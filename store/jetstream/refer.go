package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

// headerCell is on a message of the payload stream that a cell of another process has put: its name and incarnation. The
// writer's epoch of such a message is 0.
const headerCell = "Headway-Cell"

// reference says where a payload is that a cell has put, with the blobs that it names. As text it is the cell and its incarnation,
// the sequences of the messages with commas between them, the contents, and the blobs with commas between them, with semicolons
// between the four. Without blobs there are three. One that names blobs alone has no contents: nothing counts by it, and they are to
// be removed.
type reference struct {
	cell        string
	incarnation int64
	seqs        []uint64
	contents    contents
	blobs       []sentBlob
}

func (r reference) String() string {
	text := cellText(r.cell, r.incarnation) + ";" + joined(r.seqs, ",") + ";"
	if len(r.contents.items) > 0 {
		text += r.contents.String()
	}
	for i := range r.blobs {
		text += ";,"[min(i, 1):min(i, 1)+1] + r.blobs[i].String()
	}
	return text
}

func joined(seqs []uint64, separator string) string {
	texts := make([]string, len(seqs))
	for i, seq := range seqs {
		texts[i] = strconv.FormatUint(seq, 10)
	}
	return strings.Join(texts, separator)
}

func cellText(cell string, incarnation int64) string {
	return cell + " " + strconv.FormatInt(incarnation, 10)
}

func parseCell(text string) (cell string, incarnation int64, err error) {
	cell, number, _ := strings.Cut(text, " ")
	incarnation, err = strconv.ParseInt(number, 10, 64)
	if err != nil || cell == "" || incarnation < 1 {
		return "", 0, fmt.Errorf("%q is no process of a cell", text)
	}
	return cell, incarnation, nil
}

// parseReference reads the reference of what an attempt has put.
func parseReference(id port.RolloutID, text string) (r reference, err error) {
	fields := strings.Split(text, ";")
	if len(fields) != 3 && len(fields) != 4 {
		return r, fmt.Errorf("store: %.200q is no reference of a payload", text)
	}
	r.cell, r.incarnation, err = parseCell(fields[0])
	if len(fields) == 4 && err == nil {
		for entry := range strings.SplitSeq(fields[3], ",") {
			b, wrong := parseSentBlob(id, entry)
			err = errors.Join(err, wrong)
			r.blobs = append(r.blobs, b)
		}
	}
	if err == nil && (fields[1] != "" || fields[2] != "" || len(r.blobs) == 0) {
		if r.contents, err = parseContents(fields[2]); err == nil {
			r.seqs, err = parseSeqs(fields[1], ",")
		}
		if err == nil && (len(r.contents.items) != 1 || r.contents.epoch != 0 || len(r.seqs) != r.contents.chunks) {
			err = errors.New("its messages do not fit its contents")
		}
		if err == nil && r.contents.items[0].size/len(r.seqs) > math.MaxInt32 {
			err = errors.New("no message is that large")
		}
	}
	if err != nil {
		return r, fmt.Errorf("store: %.200q is no reference of a payload: %w", text, err)
	}
	return r, nil
}

func parseSeqs(text, separator string) (seqs []uint64, err error) {
	for seq := range strings.SplitSeq(text, separator) {
		number, wrong := strconv.ParseUint(seq, 10, 64)
		if wrong != nil || number == 0 {
			return nil, fmt.Errorf("%q is no message", seq)
		}
		seqs = append(seqs, number)
	}
	return seqs, nil
}

// payloadNumber stands for an attempt's payload among the blobs that are on their way. As a blob that lacks chunks it is removed.
const payloadNumber = math.MinInt32

// PutReferred implements port.Referring. A payload for which the stream has no room is an error that wraps port.ErrNoSpace. It may be
// tried again, and no message is sent twice: the server knows it for minutes alone. Incarnate comes first.
func (l *Link) PutReferred(sample port.Sample) (string, error) {
	messages, r := l.payloadMessages(&sample)
	what := r.contents.items[0]
	sent := l.blobs.begin(sample.ID, chunkOf{put: l.newPut(), id: sample.ID, number: payloadNumber, size: int64(what.size), limit: int64(l.chunkBytes()), sum: what.sum})
	sent.sending.Lock()
	defer sent.sending.Unlock()
	for _, m := range messages[len(sent.seqs):] {
		seq, err := l.putMessage(m)
		if err != nil {
			return l.Unreferred(sample.ID), fmt.Errorf("store: the payload of %v: %w", sample.ID, err)
		}
		l.blobs.add(sent, seq)
	}
	r.seqs = sent.seqs
	r.blobs = append(r.blobs, l.blobs.givenUp(sample.ID, sent)...)
	l.blobs.forget(sample.ID)
	return r.String(), nil
}

// payloadMessages are what a payload is sent in, and its reference but for their sequences.
func (l *Link) payloadMessages(sample *port.Sample) (messages []*nats.Msg, r reference) {
	body := payload.Append(nil, sample)
	limit := l.chunkBytes()
	r = reference{cell: l.cell, incarnation: l.incarnation.Load(), blobs: l.blobs.of(sample), contents: contents{chunks: max(1, (len(body)+limit-1)/limit),
		items: []item{{id: sample.ID, size: len(body), sum: crc32.Checksum(body, castagnoli)}}}}
	for i := range r.contents.chunks {
		m := nats.NewMsg(l.store.names.dataSubject)
		at := r.contents
		at.chunk = i
		m.Header[headerPayload] = []string{at.String()}
		l.sign(m, at.String())
		m.Data = body[i*limit : min((i+1)*limit, len(body))]
		messages = append(messages, m)
	}
	return messages, r
}

// sign says on a message of the payload stream which process has put it, and names it by its contents. The server drops a second one
// of a name, which is sent because the answer to the first was lost.
func (l *Link) sign(m *nats.Msg, contents string) {
	by := cellText(l.cell, l.incarnation.Load())
	m.Header[headerCell], m.Header[jetstream.MsgIDHeader] = []string{by}, []string{by + " " + contents}
}

// chunkBytes is the most that a message of the payload stream may have.
func (l *Link) chunkBytes() int {
	return max(int(l.store.control.MaxPayload())-headerSlack, headerSlack)
}

// putMessage stores a message of a payload or a turn once, and has the server sync it, however long that takes. It returns the
// message's sequence.
//
// The server answers what it has synced, with all before. A message that is found in place of its answer may be written alone: its
// server was killed before the sync, began anew, and would lose it with its power. It counts where it is found behind the answer to a
// later one.
func (l *Link) putMessage(m *nats.Msg) (seq uint64, err error) {
	for synced := uint64(0); ; {
		seq, found, err := l.publish(m)
		if err != nil || !found || seq < synced {
			return seq, err
		}
		if synced, _, err = l.publish(l.behind(m.Subject)); err != nil {
			return 0, err
		}
	}
}

// behind is a message that has the server sync all before it in the stream of a subject: of an attempt that is none, or the first
// half of a payload that has no second. The writer removes it.
func (l *Link) behind(subject string) *nats.Msg {
	if subject != l.store.names.dataSubject {
		id, _ := l.store.names.attemptOf(subject)
		id.Attempt = -1
		return nats.NewMsg(l.store.names.turnsOf(id, l.cell))
	}
	return l.store.behind()
}

// behind is a message of the payload stream that has the server sync all before it, and is no payload: it lacks its second half.
func (s *Store) behind() *nats.Msg {
	m := nats.NewMsg(s.names.dataSubject)
	m.Header[headerPayload] = []string{contents{chunks: 2, items: []item{{}}}.String()}
	return m
}

// publish stores a message, and says whether it was found in place of its answer.
func (l *Link) publish(m *nats.Msg) (seq uint64, found bool, err error) {
	s := l.store
	for {
		try, cancel := context.WithTimeout(s.ctx, apiTimeout)
		ack, err := s.js.PublishMsg(try, m)
		cancel()
		lost := s.gone(s.ctx, m.Subject, err)
		switch {
		case err == nil:
			return ack.Sequence, ack.Duplicate, nil
		case wrongSequence(err):
			if seq, err = l.putBefore(m); seq > 0 || err != nil {
				return seq, true, err
			}
		case noSpace(err):
			return 0, false, fmt.Errorf("%w: %w", port.ErrNoSpace, err)
		case s.ctx.Err() != nil:
			return 0, false, ErrClosed
		case !transient(err):
			return 0, false, err
		case lost != nil:
			return 0, false, fmt.Errorf("NATS has lost their stream: %w", lost)
		}
		if !s.pause(s.ctx, retryWait) {
			return 0, false, ErrClosed
		}
	}
}

// PutSample implements cell.Payloads.
func (l *Link) PutSample(sample port.Sample) error {
	_, err := l.PutReferred(sample)
	return err
}

// Discard implements cell.Payloads: the writer drops payloads by what the log says.
func (*Link) Discard(port.RolloutID) error { return nil }

// Refer takes the reference of a payload that a cell has put.
func (s *Store) Refer(cell string, id port.RolloutID, text string) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	r, err := parseReference(id, text)
	switch {
	case err != nil:
	case r.cell != cell:
		err = fmt.Errorf("store: the reference %.200q of the cell %s is of another", text, cell)
	case len(r.contents.items) > 0 && r.contents.items[0].id != id:
		err = fmt.Errorf("store: the reference %.200q is of %v, not of %v", text, r.contents.items[0].id, id)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", port.ErrReference, err)
	}
	p := &s.payloads
	if err := p.reach(r.newest()); err != nil {
		return err
	}
	if err := p.checkTaken(id, &r); err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.cells == nil {
		p.cells = map[string]int64{}
	}
	p.cells[r.cell] = max(p.cells[r.cell], r.incarnation)
	for i := range r.blobs {
		p.refer(&r.blobs[i])
	}
	if len(r.contents.items) == 0 {
		return nil
	}
	what := r.contents.items[0]
	for _, at := range p.groups[id.Group] {
		if at.sample == id.Sample && slices.Equal(at.seqs, r.seqs) {
			return nil // it was there when this process began to write, or is said again
		}
	}
	for _, seq := range r.seqs { // the last may be shorter
		p.room.note(seq, stored(r.contents.String(), (what.size+len(r.seqs)-1)/len(r.seqs)), 1)
	}
	p.index(id.Group, place{sample: id.Sample, attempt: id.Attempt, sum: what.sum, size: what.size, seqs: r.seqs})
	return nil
}

// newest is the last message that a reference names.
func (r *reference) newest() (seq uint64) {
	seqs := r.seqs
	for i := range r.blobs {
		seqs = append(seqs[:len(seqs):len(seqs)], r.blobs[i].seqs...)
	}
	return slices.Max(seqs)
}

const (
	// reachAhead is how many messages a reference may name behind those that the stream is known to have had: a ledger has all up to
	// one that is noted. The stream's last is asked for so seldom, as all words of cells wait for the answer.
	reachAhead = 1 << 16
	// referPatience bounds a question to the stream.
	referPatience = time.Second
)

// reach returns where a ledger may have all messages up to one.
func (p *payloads) reach(seq uint64) error {
	p.mutex.Lock()
	known := p.last
	p.mutex.Unlock()
	if seq <= known+reachAhead {
		return nil
	}
	try, cancel := context.WithTimeout(p.store.ctx, referPatience)
	defer cancel()
	info, err := p.store.data.Info(try)
	if err != nil {
		return fmt.Errorf("store: how far payloads go: %w", err)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.last = max(p.last, info.State.LastSeq)
	if seq > p.last+reachAhead {
		return fmt.Errorf("%w: store: it names message %d, and the last is %d", port.ErrReference, seq, p.last)
	}
	return nil
}

// checkTaken refuses a reference that names a message of something else. A broker that has lost its end with its power gives numbers
// out again: what the message says then counts, and not the ledger.
func (p *payloads) checkTaken(id port.RolloutID, r *reference) error {
	p.mutex.Lock()
	seq := p.taken(id, r)
	p.mutex.Unlock()
	if seq == 0 {
		return nil
	}
	try, cancel := context.WithTimeout(p.store.ctx, referPatience)
	defer cancel()
	m, err := p.store.leaderGet(try, p.store.names.data, seq)
	switch {
	case err != nil && !errors.Is(err, errNoMessage):
		return fmt.Errorf("store: message %d of the payloads: %w", seq, err)
	case err == nil && m.header.Get(headerCell) == cellText(r.cell, r.incarnation):
		return nil
	}
	return fmt.Errorf("%w: store: the reference %.200q names message %d, which has something else", port.ErrReference, r, seq)
}

// taken returns a message that a reference of an attempt names and that is needed for something else, 0 for none. p.mutex must be
// held, and is.
func (p *payloads) taken(id port.RolloutID, r *reference) uint64 {
	for _, seq := range r.seqs {
		if p.room.needs(seq) && !p.has(id, seq) {
			return seq
		}
	}
	for i := range r.blobs {
		for _, seq := range r.blobs[i].seqs {
			if p.room.needs(seq) && !p.has(r.blobs[i].id, seq) {
				return seq
			}
		}
	}
	return 0
}

// has reports whether a message is of an attempt's payload or blobs. p.mutex must be held, and is.
func (p *payloads) has(id port.RolloutID, seq uint64) bool {
	return slices.ContainsFunc(p.groups[id.Group], func(at place) bool {
		return at.sample == id.Sample && at.attempt == id.Attempt && slices.Contains(at.seqs, seq)
	}) || slices.ContainsFunc(p.blobs.groups[id.Group], func(b *blob) bool { return b.id == id && slices.Contains(b.seqs, seq) })
}

// tight reports whether payloads of cells may find no room that is taken by garbage. A cell cannot have it removed, as a put of
// this process does. p.mutex must be held, and is.
func (p *payloads) tight() bool {
	return len(p.cells) > 0 && p.room.garbage > 0 && p.room.used() > p.store.options.PayloadBytesMax/2
}

// awaited reports whether a message by its headerCell is of a cell's process that may still say what it is. One of a process in whose
// place another has spoken never will. p.mutex must be held, and is.
func (p *payloads) awaited(by string) bool {
	if by == "" {
		return false
	}
	cell, incarnation, err := parseCell(by)
	return err == nil && incarnation >= p.cells[cell]
}
