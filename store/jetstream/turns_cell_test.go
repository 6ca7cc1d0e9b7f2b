package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

var _ port.Turns = (*Link)(nil)

// keepInCell keeps turns of an attempt in a cell, from a number on.
func keepInCell(t *testing.T, l *Link, id port.RolloutID, first int, sizes ...int) (all [][]byte) {
	t.Helper()
	for n, size := range sizes {
		data := bytes.Repeat([]byte{byte(first + n)}, size)
		must(t, l.KeepTurn(id, int32(first+n), data))
		all = append(all, data)
	}
	return all
}

func readsTurns(t *testing.T, l *Link, id port.RolloutID, want [][]byte) {
	t.Helper()
	got, err := l.ReadTurns(id)
	if must(t, err); len(got) != len(want) {
		t.Fatalf("%d turns of %v are read, want %d", len(got), id, len(want))
	}
	for n := range want {
		if !bytes.Equal(got[n], want[n]) {
			t.Errorf("turn %d of %v has %d bytes and differs from the %d that were kept", n, id, len(got[n]), len(want[n]))
		}
	}
}

// TestTurnsOfACell: the next process of a cell reads what was kept, and goes on with it. From then on the process before keeps
// nothing of the attempt. Those of other cells, and of attempts that nobody has taken up, are their own.
func TestTurnsOfACell(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	begin(t, open(t, o))
	id, other := port.RolloutID{Group: 12, Sample: 3, Attempt: 2}, port.RolloutID{Group: 12, Sample: 4, Attempt: 1}
	first, c := openCell(t, o, "rack.1-b"), openCell(t, o, "1-b")
	kept := keepInCell(t, first, id, 0, 10, 0, 3<<20, 20)
	keepInCell(t, first, other, 0, 5)
	keepInCell(t, c, id, 0, 7)
	second := openCell(t, o, "rack.1-b")
	if second.KeptTurns(id) == 0 || second.KeptTurns(other) == 0 || second.KeptTurns(port.RolloutID{Group: 12}) != 0 {
		t.Errorf("the next process finds %v", second.turns.kept)
	}
	kept = append(kept, keepInCell(t, first, id, 4, 30)...) // before it is taken up
	readsTurns(t, second, id, kept)
	if err := first.KeepTurn(id, 5, nil); err == nil || !strings.Contains(err.Error(), "another process of cell rack.1-b goes on with the rollout") {
		t.Errorf("the process before keeps a turn: %v", err)
	}
	keepInCell(t, first, other, 1, 5)
	kept = append(kept, keepInCell(t, second, id, 5, 40, 50)...)
	third := openCell(t, o, "rack.1-b")
	readsTurns(t, third, id, kept)
	readsTurns(t, third, id, kept) // once more, by the same process
	keepInCell(t, third, id, 7, 1)
}

// What the process before keeps while this one waits for a writer is found when it is taken up.
func TestTurnsOfACellThatWaits(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	begin(t, open(t, o))
	id := port.RolloutID{Group: 1, Attempt: 1}
	first, second := openCell(t, o, "b"), openCell(t, o, "b")
	if second.KeptTurns(id) != 0 {
		t.Fatal("there are turns already")
	}
	kept := keepInCell(t, first, id, 0, 10)
	if err := second.Follow(canceled(t), func([]byte, bool) error { return nil }); err == nil {
		t.Error("it follows, and its context has ended")
	}
	if second.KeptTurns(id) == 0 {
		t.Error("they are not found")
	}
	readsTurns(t, second, id, kept)
}

// Turns of an attempt are kept by several callers at once. A process that goes on with it uses numbers again that lie behind
// one that is missing.
func TestTurnsOfACellAtOnce(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	begin(t, open(t, o))
	id := port.RolloutID{Group: 1, Attempt: 1}
	first := openCell(t, o, "b")
	var wait sync.WaitGroup
	for n := range int32(20) {
		if n != 15 { // which it has no time for
			wait.Go(func() { must(t, first.KeepTurn(id, n, fmt.Append(nil, n))) })
		}
	}
	wait.Wait()
	second := openCell(t, o, "b")
	got, err := second.ReadTurns(id)
	if must(t, err); len(got) != 15 || string(got[14]) != "14" {
		t.Fatalf("%q", got)
	}
	keepInCell(t, second, id, 15, 3)
	got, err = openCell(t, o, "b").ReadTurns(id)
	if must(t, err); len(got) != 16 || len(got[15]) != 3 {
		t.Errorf("%q", got)
	}
}

// A turn that was put and whose answer was lost is put once more, and is there once.
func TestTurnOfACellIsPutTwice(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	begin(t, open(t, o))
	id := port.RolloutID{Group: 1, Attempt: 1}
	l := openCell(t, o, "b")
	kept := keepInCell(t, l, id, 0, 4, 5)
	l.turns.attempts[id.Group][id].last = 1 // as if the second had not been answered
	must(t, l.KeepTurn(id, 1, kept[1]))
	third := []byte("the server has forgotten its name")
	m := l.turnMessage(id, turnPart{incarnation: l.incarnation.Load(), number: 2, parts: 1, sum: crc32.Checksum(third, castagnoli)})
	m.Header.Del(jetstream.MsgIDHeader)
	m.Data = third
	_, err := l.putMessage(m)
	must(t, err)
	must(t, l.KeepTurn(id, 2, third))
	kept = append(kept, third)
	kept = append(kept, keepInCell(t, l, id, 3, 6)...)
	readsTurns(t, openCell(t, o, "b"), id, kept)
}

// TestTurnsOfACellAreRemoved: the writer removes turns with their group, and at its start those of groups that have ended.
func TestTurnsOfACellAreRemoved(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	for g := range loop.GroupID(5) {
		keepInCell(t, l, port.RolloutID{Group: g, Attempt: 1}, 0, 3, 4)
	}
	left := func(s *Store) map[loop.GroupID]int {
		_, all, err := s.turnSubjects(t.Context(), ">")
		must(t, err)
		groups := map[loop.GroupID]int{}
		for id, n := range all {
			groups[id.Group] += n
		}
		return groups
	}
	must(t, s.Forget(0)) // no cell was heard
	s.hearsCells.Store(true)
	must(t, s.Forget(1))
	want := map[loop.GroupID]int{0: 2, 2: 2, 3: 2, 4: 2}
	for !maps.Equal(left(s), want) {
		runtime.Gosched()
	}
	must(t, s.Close())
	next := open(t, o)
	_, err := next.Retain(func(id port.RolloutID) bool { return id.Group == 3 })
	must(t, err)
	for !maps.Equal(left(next), map[loop.GroupID]int{3: 2}) {
		runtime.Gosched()
	}
}

// A damaged turn is an error, and full streams and those of earlier builds keep nothing.
func TestTurnsOfACellThatCannotBe(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true, PayloadBytesMax: 1 << 20}
	s := open(t, o)
	begin(t, s)
	id := port.RolloutID{Group: 1, Attempt: 1}
	l := openCell(t, o, "b")
	if err := l.KeepTurn(id, 0, make([]byte, 1<<19)); !errors.Is(err, port.ErrNoSpace) {
		t.Errorf("a turn that finds no room: %v", err)
	}
	m := l.turnMessage(id, turnPart{incarnation: 1, parts: 1, sum: 5})
	_, err := l.putMessage(m)
	must(t, err)
	if _, err := openCell(t, o, "b").ReadTurns(id); !errors.Is(err, port.ErrBlobDamaged) {
		t.Errorf("a damaged turn: %v", err)
	}
	must(t, s.js.DeleteStream(t.Context(), s.names.turns))
	old := openCell(t, o, "b")
	if err := old.KeepTurn(id, 0, nil); !errors.Is(err, port.ErrNoSpace) || !strings.Contains(err.Error(), "earlier build") || old.KeptTurns(id) != 0 {
		t.Errorf("a run without the stream: %v", err)
	}
}

// TestUnkeptInACell: of what is not to be gone on with the next process finds nothing. Where that has taken it up, the one
// before is told so.
func TestUnkeptInACell(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	begin(t, open(t, o))
	for turns := range 3 {
		id, taken := port.RolloutID{Group: 1, Sample: int32(turns), Attempt: 1}, port.RolloutID{Group: 2, Sample: int32(turns), Attempt: 1}
		first := openCell(t, o, "b")
		for _, id := range []port.RolloutID{id, taken} {
			keepInCell(t, first, id, 0, make([]int, turns)...)
		}
		must(t, first.UnkeepTurns(id))
		second := openCell(t, o, "b")
		readsTurns(t, second, id, nil)
		readsTurns(t, second, taken, make([][]byte, turns))
		if err := first.UnkeepTurns(taken); turns > 0 && (err == nil || !strings.Contains(err.Error(), "another process of cell b goes on")) {
			t.Errorf("%d turns that another process has read end with the one before: %v", turns, err)
		}
		readsTurns(t, openCell(t, o, "b"), taken, make([][]byte, turns)) // they are there all the same
		must(t, second.UnkeepTurns(id))                                  // it has marked it
		readsTurns(t, openCell(t, o, "b"), id, nil)
	}
}

// TestFullOfTurns: a stream that takes no turn more takes marks, so that what is kept is taken up.
func TestFullOfTurns(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true, PayloadBytesMax: 4 << 20}
	begin(t, open(t, o))
	first := openCell(t, o, "b")
	kept := map[port.RolloutID][][]byte{}
	for g := loop.GroupID(1); ; g++ {
		id := port.RolloutID{Group: g, Attempt: 1}
		data := bytes.Repeat([]byte{byte(g)}, 1000)
		first.turns.looked = time.Time{} // it looks each time
		err := first.KeepTurn(id, 0, data)
		if errors.Is(err, port.ErrNoSpace) {
			break
		}
		must(t, err)
		kept[id] = [][]byte{data}
	}
	second := openCell(t, o, "b")
	for id, turns := range kept {
		readsTurns(t, second, id, turns)
	}
	if len(kept) < 500 {
		t.Errorf("%d turns were kept", len(kept))
	}
}

// A cell whose stream of turns NATS has lost keeps nothing more, and goes on. What it knew of groups goes with them.
func TestTurnsAreLost(t *testing.T) {
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	s := open(t, o)
	begin(t, s)
	id, other := port.RolloutID{Group: 1, Attempt: 1}, port.RolloutID{Group: 2, Attempt: 1}
	l := openCell(t, o, "b")
	keepInCell(t, l, id, 0, 10, 10)
	must(t, s.js.DeleteStream(t.Context(), s.names.turns))
	again := func() {
		t.Helper()
		for _, id := range []port.RolloutID{id, other} {
			if err := l.KeepTurn(id, 2, []byte("turn")); !errors.Is(err, port.ErrNoSpace) {
				t.Errorf("a turn of %v without a stream: %v", id, err)
			}
			must(t, l.UnkeepTurns(id))
		}
	}
	again()
	_, err := s.makeStream(t.Context(), s.config(s.names.turns, 1<<20, s.names.turnSubject+".>"))
	must(t, err)
	if err := l.KeepTurn(id, 2, []byte("turn")); !errors.Is(err, port.ErrNoSpace) {
		t.Errorf("a turn behind those that are lost: %v", err)
	}
	must(t, l.UnkeepTurns(id))
	must(t, l.Forget(1))
	must(t, l.Forget(2))
	if len(l.turns.attempts) > 0 {
		t.Errorf("of groups that have ended it knows %v", l.turns.attempts)
	}
}

// A message that is on its way is sent again until it is stored, and one of another process ends that.
func TestTurnOnItsWay(t *testing.T) {
	if err := (&jetstream.APIError{Code: 409, ErrorCode: errorInProcess}); !transient(err) {
		t.Error("a message that is on its way is not sent again")
	}
	o := Options{URL: serverWithRights(t, "turns"), Run: "turns", CellTurns: true}
	begin(t, open(t, o))
	id := port.RolloutID{Group: 1, Attempt: 1}
	l := openCell(t, o, "b")
	m := l.turnMessage(id, turnPart{incarnation: 5, parts: 1})
	for _, expected := range []uint64{0, 1} {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(expected))
		if seq, err := l.putBefore(m); seq != 0 || err != nil {
			t.Errorf("a message that is not stored, behind %d, is said to be %d: %v", expected, seq, err)
		}
		if expected == 0 {
			keepInCell(t, l, id, 0, 3)
		}
	}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "7")
	if _, err := l.putBefore(m); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the last is another's: %v", err)
	}
}
