package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Turns of rollouts that cells in other processes play are in a stream of their own, one subject an attempt and cell. A
// message names the one that it expects to be the last of its subject. A process that goes on with an attempt first writes a
// mark there: from then on the process before writes nothing behind what the new one has read.

// turnsShare is how many times the bytes of this stream those of the payload stream are. marksShare is the part of it that turns
// leave to marks.
const turnsShare, marksShare = 4, 8

// headerTurn is on a message of the stream of turns: see turnPart.
const headerTurn = "Headway-Turn"

// turnPart says which part of which turn a message has, and by which process of the cell. As text it is the numbers in their
// order here, between spaces. One of a number below 0 is a mark.
type turnPart struct {
	incarnation         int64
	number, part, parts int32
	sum                 uint32 // of the turn
}

const turnPartFormat = "%d %d %d %d %d"

func (p turnPart) String() string {
	return fmt.Sprintf(turnPartFormat, p.incarnation, p.number, p.part, p.parts, p.sum)
}

func parseTurnPart(text string) (p turnPart, err error) {
	if _, err = fmt.Sscanf(text, turnPartFormat, &p.incarnation, &p.number, &p.part, &p.parts, &p.sum); err != nil || p.part < 0 || p.part >= p.parts {
		return p, fmt.Errorf("the header %q is not one of turns", text)
	}
	return p, nil
}

// standing is an attempt whose turns a cell keeps.
type standing struct {
	mutex sync.Mutex // of who writes
	last  uint64     // the last message of its subject
}

// cellTurns are the turns that a cell keeps.
type cellTurns struct {
	mutex sync.Mutex
	// attempts are those of this process. kept has how many messages there were of each when it began.
	attempts map[loop.GroupID]map[port.RolloutID]*standing
	kept     map[loop.GroupID]map[port.RolloutID]int
	// stale: kept is of the time before Follow, and the process before may have gone on.
	stale atomic.Bool
	// stream has them, nil before loadTurns, and where the run has none.
	stream jetstream.Stream
	// used are its bytes as of looked, most those that it takes.
	used, most int64
	looked     time.Time
}

// turnsOf is the subject of an attempt's turns. A cell's name may have dots, so it is the last.
func (n *names) turnsOf(id port.RolloutID, cell string) string {
	return fmt.Sprintf("%s.%d.%d.%d.%s", n.turnSubject, id.Group, id.Sample, id.Attempt, cell)
}

// attemptOf is the attempt of a subject of turns.
func (n *names) attemptOf(subject string) (id port.RolloutID, err error) {
	_, err = fmt.Sscanf(strings.TrimPrefix(subject, n.turnSubject+"."), "%d.%d.%d.", &id.Group, &id.Sample, &id.Attempt)
	return id, err
}

// loadTurns looks which attempts the processes before have kept turns of.
func (l *Link) loadTurns(ctx context.Context) error {
	stream, all, err := l.store.turnSubjects(ctx, "*.*.*."+l.cell)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: the turns of cell %s: %w", l.cell, err)
	}
	l.turns.mutex.Lock()
	defer l.turns.mutex.Unlock()
	l.turns.stream, l.turns.most = stream, stream.CachedInfo().Config.MaxBytes
	for id, n := range all {
		if l.turns.kept[id.Group] == nil {
			l.turns.kept[id.Group] = map[port.RolloutID]int{}
		}
		l.turns.kept[id.Group][id] = n
	}
	return nil
}

// turnSubjects are the attempts of which there are turns, by subjects that fit, with how many messages they have.
func (s *Store) turnSubjects(ctx context.Context, which string) (stream jetstream.Stream, all map[port.RolloutID]int, err error) {
	all = map[port.RolloutID]int{}
	err = s.again(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, s.names.turns)
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(s.names.turnSubject+"."+which))
		if err != nil {
			return err
		}
		for subject, n := range info.State.Subjects {
			id, err := s.names.attemptOf(subject)
			if err != nil {
				return fmt.Errorf("the subject %s: %w", subject, err)
			}
			all[id] += int(n)
		}
		return nil
	})
	return stream, all, err
}

// KeepTurn implements port.Turns. Once another process of the cell has taken the attempt up, it fails.
func (l *Link) KeepTurn(id port.RolloutID, number int32, data []byte) error {
	a, err := l.standing(id), error(nil)
	if a == nil {
		err = fmt.Errorf("%w: the run has no stream %s, which a control plane of an earlier build does not make", port.ErrNoSpace, l.store.names.turns)
	} else {
		err = l.keepTurn(a, id, number, data)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) { // NATS has lost it
		err = fmt.Errorf("%w: %w", port.ErrNoSpace, err)
	}
	if errors.Is(err, port.ErrNoSpace) {
		l.store.sayNoTurns(err)
	}
	return err
}

func (l *Link) keepTurn(a *standing, id port.RolloutID, number int32, data []byte) error {
	if l.fullOfTurns(int64(len(data))) {
		return fmt.Errorf("%w: turns take up to %d of %d bytes of the stream %s, so that they can be taken up", port.ErrNoSpace, l.turns.most-l.turns.most/marksShare, l.turns.most, l.store.names.turns)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	limit := max(int(l.store.control.MaxPayload())-headerSlack, headerSlack)
	part := turnPart{incarnation: l.incarnation.Load(), number: number, parts: int32(max(1, (len(data)+limit-1)/limit)), sum: crc32.Checksum(data, castagnoli)}
	for ; part.part < part.parts; part.part++ {
		m := l.turnMessage(id, part)
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(a.last))
		m.Data = data[int(part.part)*limit : min(int(part.part+1)*limit, len(data))]
		seq, err := l.putMessage(m)
		if err != nil {
			return fmt.Errorf("store: turn %d of %v: %w", number, id, err)
		}
		a.last = seq
	}
	return nil
}

// fullOfTurns says whether marks alone find room behind a turn of so many bytes. It looks once a second, and counts turns meanwhile.
func (l *Link) fullOfTurns(size int64) bool {
	t := &l.turns
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if now := time.Now(); now.Sub(t.looked) >= time.Second {
		try, cancel := context.WithTimeout(l.store.ctx, apiTimeout)
		defer cancel()
		if info, err := t.stream.Info(try); err == nil {
			t.used, t.looked = int64(info.State.Bytes), now
		}
	}
	if t.most > 0 && t.used+size > t.most-t.most/marksShare {
		return true
	}
	t.used += size
	return false
}

// putBefore is the sequence of a message that was put and not answered, 0 while it may be on its way: the last of its subject is
// the one that it expects. It fails if another process has put the last.
func (l *Link) putBefore(m *nats.Msg) (seq uint64, err error) {
	expected, err := strconv.ParseUint(m.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err != nil {
		return 0, err
	}
	last, err := l.lastTurn(m.Subject)
	switch {
	case errors.Is(err, errNoMessage) && expected > 0:
		return 0, fmt.Errorf("%w: NATS has lost the earlier turns of the rollout", port.ErrNoSpace)
	case err != nil && !errors.Is(err, errNoMessage):
		return 0, err
	case last.seq == expected:
		return 0, nil
	case last.header.Get(headerTurn) != m.Header.Get(headerTurn):
		return 0, fmt.Errorf("another process of cell %s goes on with the rollout", l.cell)
	}
	return last.seq, nil
}

func (l *Link) turnMessage(id port.RolloutID, part turnPart) *nats.Msg {
	m := nats.NewMsg(l.store.names.turnsOf(id, l.cell))
	m.Header.Set(headerTurn, part.String())
	// The server drops a second one of a name, which is sent because the answer to the first was lost.
	m.Header.Set(jetstream.MsgIDHeader, m.Subject+" "+part.String())
	return m
}

// standing is what is known of an attempt's subject, nil where there is no stream.
func (l *Link) standing(id port.RolloutID) *standing {
	l.turns.mutex.Lock()
	defer l.turns.mutex.Unlock()
	if l.turns.stream == nil {
		return nil
	}
	group := l.turns.attempts[id.Group]
	if group == nil {
		group = map[port.RolloutID]*standing{}
		l.turns.attempts[id.Group] = group
	}
	if group[id] == nil {
		group[id] = &standing{}
	}
	return group[id]
}

// KeptTurns implements port.Turns: not below 1 for an attempt that has any. The process before may keep
// some after this one has begun. So it looks once more at the first attempt that has none.
func (l *Link) KeptTurns(id port.RolloutID) int {
	n := l.keptTurns(id)
	if n > 0 || !l.turns.stale.Swap(false) {
		return n
	}
	if err := l.loadTurns(l.store.ctx); err != nil {
		l.store.options.Logf("%v", err)
	}
	return l.keptTurns(id)
}

func (l *Link) keptTurns(id port.RolloutID) int {
	l.turns.mutex.Lock()
	defer l.turns.mutex.Unlock()
	return l.turns.kept[id.Group][id]
}

// ReadTurns implements port.Turns. From then on no process before this one keeps any of the attempt.
func (l *Link) ReadTurns(id port.RolloutID) (all [][]byte, err error) {
	a := l.standing(id)
	if a == nil {
		return nil, nil
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	m := l.turnMessage(id, turnPart{incarnation: l.incarnation.Load(), number: -1, parts: 1})
	if a.last, err = l.putMessage(m); err != nil {
		return nil, fmt.Errorf("store: taking up %v: %w", id, err)
	}
	var r turnReader
	for next := uint64(1); next < a.last && err == nil; {
		var got message
		if got, err = l.nextTurn(m.Subject, next); err == nil {
			err = r.take(got)
			next = got.seq + 1
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: the turns of %v: %w", id, err)
	}
	return r.upToGap(), nil
}

// KeptBlobs implements port.Turns. There are none: blobs that a process before has sent go with its own payload.
func (*Link) KeptBlobs(port.RolloutID) []int32 { return nil }

// UnkeepTurns implements port.Turns: it deletes the first message, without which there is no claim. A process that has marked
// the attempt before may have read it.
func (l *Link) UnkeepTurns(id port.RolloutID) error {
	a := l.standing(id)
	if a == nil {
		return nil
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	err := l.unkeep(l.store.names.turnsOf(id, l.cell))
	if err != nil {
		return fmt.Errorf("store: the turns of %v: %w", id, err)
	}
	return nil
}

func (l *Link) unkeep(subject string) error {
	if err := l.unmarked(subject); err != nil {
		return err
	}
	first, err := l.nextTurn(subject, 1)
	if errors.Is(err, errNoMessage) { // nothing was kept, or the group has ended
		return nil
	}
	if err == nil {
		err = l.store.again(l.store.ctx, func(ctx context.Context) error {
			return l.store.deleteMessage(ctx, l.store.names.turns, first.seq)
		})
	}
	if err != nil {
		return err
	}
	return l.unmarked(subject) // it may have been marked meanwhile
}

// unmarked fails where another process has marked the attempt of a subject.
func (l *Link) unmarked(subject string) error {
	last, err := l.lastTurn(subject)
	if errors.Is(err, errNoMessage) { // nothing is kept, or the group has ended
		return nil
	}
	if err != nil {
		return err
	}
	part, err := parseTurnPart(last.header.Get(headerTurn))
	if err == nil && part.incarnation > l.incarnation.Load() {
		return fmt.Errorf("another process of cell %s goes on with the rollout", l.cell)
	}
	return err
}

// nextTurn is the first message of a subject from a sequence on.
func (l *Link) nextTurn(subject string, seq uint64) (message, error) {
	return l.askTurns(func(ctx context.Context) (message, error) {
		return l.store.leaderRequest(ctx, l.store.names.turns, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, seq, subject))
	})
}

// lastTurn is the last message of a subject.
func (l *Link) lastTurn(subject string) (message, error) {
	return l.askTurns(func(ctx context.Context) (message, error) {
		return l.store.leaderLast(ctx, l.store.names.turns, subject)
	})
}

// askTurns asks the leader of the stream, however long that takes. No such message is errNoMessage.
func (l *Link) askTurns(ask func(ctx context.Context) (message, error)) (m message, err error) {
	err = l.store.again(l.store.ctx, func(ctx context.Context) (err error) {
		m, err = ask(ctx)
		return err
	})
	return m, err
}

// turnReader puts turns together from their messages, in the order of those.
type turnReader struct {
	turns map[int32][]byte
	// open is the turn whose parts come.
	open []byte
	next int32
}

func (r *turnReader) take(m message) error {
	p, err := parseTurnPart(m.header.Get(headerTurn))
	switch {
	case err != nil:
		return fmt.Errorf("message %d: %w", m.seq, err)
	case p.number < 0: // what is behind a gap is not gone on with
		whole := r.upToGap()
		r.turns, r.open, r.next = map[int32][]byte{}, nil, 0
		for number, data := range whole {
			r.turns[int32(number)] = data
		}
		return nil
	case p.part == 0:
		r.open = nil
	case p.part != r.next:
		return fmt.Errorf("message %d has part %d of turn %d, want part %d", m.seq, p.part, p.number, r.next)
	}
	r.open, r.next = append(r.open, m.data...), p.part+1
	if r.next < p.parts {
		return nil
	}
	if sum := crc32.Checksum(r.open, castagnoli); sum != p.sum {
		return fmt.Errorf("%w: turn %d, message %d, has the checksum %08x, want %08x", port.ErrBlobDamaged, p.number, m.seq, sum, p.sum)
	}
	if r.turns == nil {
		r.turns = map[int32][]byte{}
	}
	r.turns[p.number], r.open, r.next = r.open, nil, 0
	return nil
}

// upToGap are the turns up to the first that is missing.
func (r *turnReader) upToGap() (all [][]byte) {
	for number := int32(0); ; number++ {
		data, there := r.turns[number]
		if !there {
			return all
		}
		all = append(all, data)
	}
}

// DropTurns implements port.Turns. The writer removes them with the group.
func (l *Link) DropTurns(id port.RolloutID) {
	l.turns.mutex.Lock()
	defer l.turns.mutex.Unlock()
	delete(l.turns.attempts[id.Group], id)
}

// Forget implements cell.Payloads: the writer drops payloads and turns by what the log says.
func (l *Link) Forget(group loop.GroupID) error {
	l.blobs.forgetGroup(group)
	l.turns.mutex.Lock()
	defer l.turns.mutex.Unlock()
	delete(l.turns.attempts, group)
	delete(l.turns.kept, group)
	return nil
}

// RetainTurns implements port.Turns: the writer removes what is not needed.
func (*Link) RetainTurns(func(port.RolloutID) bool) {}

// endedGroups are groups whose turns in cells are to be removed.
type endedGroups struct {
	mutex  sync.Mutex
	groups []loop.GroupID
	wake   chan struct{}
}

// forgetCells has the turns of a group in cells removed, once a cell was heard.
func (s *Store) forgetCells(group loop.GroupID) {
	if s.turns != nil && s.hearsCells.Load() {
		s.forgetTurns(group)
	}
}

func (s *Store) forgetTurns(group loop.GroupID) {
	s.ended.mutex.Lock()
	s.ended.groups = append(s.ended.groups, group)
	s.ended.mutex.Unlock()
	select {
	case s.ended.wake <- struct{}{}:
	default:
	}
}

// removeTurns removes turns of groups that have ended, until the store is closed.
func (s *Store) removeTurns() {
	for {
		select {
		case <-s.ended.wake:
		case <-s.ctx.Done():
			return
		}
		s.ended.mutex.Lock()
		groups := s.ended.groups
		s.ended.groups = nil
		s.ended.mutex.Unlock()
		for _, group := range groups {
			if err := s.purgeTurns(group); err != nil && s.ctx.Err() == nil {
				s.options.Logf("store: removing turns of group %d: %v", group, err)
			}
		}
	}
}

func (s *Store) purgeTurns(group loop.GroupID) error {
	return s.again(s.ctx, func(ctx context.Context) error {
		return s.turns.Purge(ctx, jetstream.WithPurgeSubject(fmt.Sprintf("%s.%d.>", s.names.turnSubject, group)))
	})
}

// retainCells removes the turns in cells of groups that have none that counts any more.
func (s *Store) retainCells(counts func(port.RolloutID) bool) {
	if s.turns == nil {
		return
	}
	_, all, err := s.turnSubjects(s.ctx, ">")
	if err != nil {
		s.options.Logf("store: looking for turns of cells: %v", err)
		return
	}
	lives := map[loop.GroupID]bool{}
	for id := range all {
		lives[id.Group] = lives[id.Group] || counts(id)
	}
	for group, lives := range lives {
		if !lives {
			s.forgetTurns(group)
		}
	}
}
