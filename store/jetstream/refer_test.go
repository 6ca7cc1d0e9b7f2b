package jetstream

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// openCell opens the link of a process of a cell, which has an incarnation.
func openCell(t testing.TB, o Options, cell string) *Link {
	t.Helper()
	l, err := OpenLink(t.Context(), asCell(t, o, cell), cell)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	_, _, err = l.Begin(t.Context())
	must(t, err)
	_, err = l.Incarnate(t.Context())
	must(t, err)
	return l
}

// refer has a cell put a payload, and the writer take its reference.
func refer(t *testing.T, s *Store, l *Link, sample port.Sample) (reference string) {
	t.Helper()
	reference, err := l.PutReferred(sample)
	must(t, err)
	must(t, s.Refer(l.cell, sample.ID, reference))
	return reference
}

// holds requires that a group has these payloads.
func holds(t *testing.T, s *Store, group loop.GroupID, want ...port.Sample) {
	t.Helper()
	got, err := s.Samples(group)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("group %d has %d payloads, want %d: %v", group, len(got), len(want), err)
	}
}

// large is a payload that takes several messages.
func large(id port.RolloutID) port.Sample {
	sample := storetest.Sample(id, 5)
	sample.Response = strings.Repeat("long ", 600<<10)
	return sample
}

func messages(t *testing.T, s *Store) uint64 {
	t.Helper()
	info, err := s.data.Info(t.Context())
	must(t, err)
	return info.State.Msgs
}

// TestReferredPayloads: the writer reads what a cell has put, in one message or several, however often it is told of it. The
// last attempt counts in whatever order they come. What is forgotten leaves the stream.
func TestReferredPayloads(t *testing.T) {
	o := Options{URL: serverWithRights(t, "referred"), Run: "referred"}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	small, big := storetest.Sample(port.RolloutID{Group: 1, Attempt: 2}, 5), large(port.RolloutID{Group: 1, Sample: 1, Attempt: 1})
	again := refer(t, s, l, small)
	refer(t, s, l, big)
	refer(t, s, l, storetest.Sample(port.RolloutID{Group: 1, Attempt: 1}, 5))
	must(t, s.Refer("b", small.ID, again))
	must(t, s.PutSample(storetest.Sample(port.RolloutID{Group: 2, Attempt: 1}, 5)))
	holds(t, s, 1, small, big)
	must(t, s.Discard(port.RolloutID{Group: 1, Attempt: 1}))
	holds(t, s, 1, small, big)
	must(t, s.Forget(1))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 1 {
		t.Errorf("the stream has %d messages, want that of the group that lives", n)
	}
}

// TestPayloadBeforeItsReference: a payload that the writer has not been told of is not removed, and a writer that takes over finds
// it. It is removed once another process of its cell has spoken.
func TestPayloadBeforeItsReference(t *testing.T) {
	o := Options{URL: serverWithRights(t, "unsaid"), Run: "unsaid"}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	unsaid := storetest.Sample(port.RolloutID{Group: 1, Attempt: 1}, 5)
	reference, err := l.PutReferred(unsaid)
	must(t, err)
	own := storetest.Sample(port.RolloutID{Group: 3, Attempt: 1}, 5)
	must(t, s.PutSample(own))
	s.payloads.reclaim(t.Context(), true)
	must(t, s.Refer("b", unsaid.ID, reference))
	holds(t, s, 1, unsaid)

	late := large(port.RolloutID{Group: 1, Sample: 1, Attempt: 1})
	reference, err = l.PutReferred(late)
	must(t, err)
	must(t, s.Close())
	s = open(t, o)
	holds(t, s, 1, unsaid, late)
	must(t, s.Refer("b", late.ID, reference))
	holds(t, s, 1, unsaid, late)

	_, err = l.PutReferred(storetest.Sample(port.RolloutID{Group: 1, Sample: 2, Attempt: 1}, 5))
	must(t, err)
	before := messages(t, s)
	another := openCell(t, o, "b")
	refer(t, s, another, storetest.Sample(port.RolloutID{Group: 4, Attempt: 1}, 5))
	s.payloads.reclaim(t.Context(), true)
	if n, want := messages(t, s), before-1; n != want {
		t.Errorf("the stream has %d messages, want one less of the process before, one of the newest, and none that was to be synced alone: %d", n, want)
	}
	holds(t, s, 1, unsaid, late)
	must(t, s.Forget(1))
	must(t, s.Forget(3))
	must(t, s.Forget(4))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 0 {
		t.Errorf("the stream has %d messages after all groups have ended", n)
	}
}

// TestBadReferences: a reference that is none, or another payload's, is refused and changes nothing.
func TestBadReferences(t *testing.T) {
	o := Options{URL: serverWithRights(t, "bad"), Run: "bad"}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	sample := storetest.Sample(port.RolloutID{Group: 1, Attempt: 1}, 5)
	good, err := l.PutReferred(sample)
	must(t, err)
	if err := s.Refer("b", port.RolloutID{Group: 2, Attempt: 1}, good); err == nil {
		t.Error("the reference of another payload is taken")
	}
	for _, text := range []string{"", "b 1", "b 1;1;", "b 0;1;0 0 1 1 0 1 5 7", "b 1;0;0 0 1 1 0 1 5 7", "b 1;1,2;0 0 1 1 0 1 5 7", "b 1;1;7 0 1 1 0 1 5 7", ";1;0 0 1 1 0 1 5 7"} {
		if err := s.Refer("b", sample.ID, text); err == nil || !strings.Contains(err.Error(), "no reference of a payload") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := s.Samples(1); err == nil {
		t.Error("a payload is there by bad references")
	}
	must(t, s.Refer("b", sample.ID, good))
	holds(t, s, 1, sample)
}

// TestReferencesOfOthers: a cell that has been taken over names messages of others, or none, and sizes that none has. It is refused,
// and nothing of the others is removed.
func TestReferencesOfOthers(t *testing.T) {
	o := Options{URL: serverWithRights(t, "others"), Run: "others"}
	s := open(t, o)
	begin(t, s)
	b, c := openCell(t, o, "b"), openCell(t, o, "1-b")
	id := port.RolloutID{Group: 1, Attempt: 1}
	others, own := storetest.Sample(port.RolloutID{Group: 2, Attempt: 1}, 5), storetest.Sample(port.RolloutID{Group: 3, Attempt: 1}, 5)
	must(t, c.PutBlob(others.ID, 4, rowsOf(4, 1)))
	refer(t, s, c, others)
	must(t, s.PutSample(own))
	sample := withRows(id, 0)
	must(t, b.PutBlob(id, 0, rowsOf(0, 2)))
	good, err := b.PutReferred(sample)
	must(t, err)
	for what, lie := range map[string]func(r *reference){
		"another cell":            func(r *reference) { r.cell = "1-b" },
		"another cell's payload":  func(r *reference) { r.seqs[0] = s.payloads.groups[2][0].seqs[0] },
		"the writer's payload":    func(r *reference) { r.seqs[0] = s.payloads.groups[3][0].seqs[0] },
		"another cell's rows":     func(r *reference) { r.blobs[0].seqs[1] = s.payloads.blobs.groups[2][0].seqs[0] },
		"a payload as rows":       func(r *reference) { r.blobs[0].seqs = s.payloads.groups[2][0].seqs },
		"a message to come":       func(r *reference) { r.seqs[0] += 2 * reachAhead },
		"a message of next year":  func(r *reference) { r.blobs[0].seqs[0] = 1 << 60 },
		"a payload of a terabyte": func(r *reference) { r.contents.items[0].size = 1 << 40 },
		"rows of a terabyte":      func(r *reference) { r.blobs[0].size, r.blobs[0].limit = 1<<40, 1<<39 },
	} {
		r, err := parseReference(id, good)
		must(t, err)
		lie(&r)
		if err := s.Refer("b", id, r.String()); !errors.Is(err, port.ErrReference) {
			t.Errorf("%s: %v, want a refusal of %s", what, err, r)
		}
		must(t, s.Discard(id))
		s.payloads.reclaim(t.Context(), true)
		holds(t, s, 2, others)
		hasBlob(t, s, others.ID, 4, rowsOf(4, 1))
		holds(t, s, 3, own)
	}
	if n := len(s.payloads.room.entries); len(s.payloads.cells) != 1 || n > 6 {
		t.Errorf("cells %v are heard, and %d messages accounted for, want the other alone and at most 6", s.payloads.cells, n)
	}
	for range 2 {
		must(t, s.Refer("b", id, good))
		holds(t, s, 1, sample)
		hasBlob(t, s, id, 0, rowsOf(0, 2))
	}
}

// sized is the sample of a group whose response has so many bytes.
func sized(group loop.GroupID, bytes int) port.Sample {
	sample := storetest.Sample(port.RolloutID{Group: group, Attempt: 1}, 5)
	sample.Response = strings.Repeat("x", bytes)
	return sample
}

// TestPutReferredWithoutRoom: a stream that is full is said in the store's own word. What is forgotten there is removed by itself,
// little as it is and behind payloads that live, so that the next finds room.
func TestPutReferredWithoutRoom(t *testing.T) {
	o := Options{URL: serverWithRights(t, "full"), Run: "full", PayloadBytesMax: 4 << 20}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	refer(t, s, l, sized(1, 2500<<10))
	refer(t, s, l, sized(2, 700<<10))
	last := sized(3, 1200<<10)
	reference, err := l.PutReferred(last)
	if !errors.Is(err, port.ErrNoSpace) {
		t.Fatalf("%v, want that there is no room", err)
	}
	must(t, s.Forget(2))
	for err = port.ErrNoSpace; errors.Is(err, port.ErrNoSpace); {
		reference, err = l.PutReferred(last)
	}
	must(t, err)
	must(t, s.Refer("b", last.ID, reference))
	holds(t, s, 3, last)
}

// TestPartOfAPayloadWithoutRoom: where the stream has room for one message of a payload and not for the next, the one is stored once,
// however often the payload is tried. It is removed with an attempt that is given up.
func TestPartOfAPayloadWithoutRoom(t *testing.T) {
	o := Options{URL: serverWithRights(t, "part"), Run: "part", PayloadBytesMax: 4 << 20}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	refer(t, s, l, sized(1, 2600<<10))
	before := messages(t, s)
	late, givenUp := sized(2, 1900<<10), sized(3, 1900<<10)
	for range 3 {
		if _, err := l.PutReferred(late); !errors.Is(err, port.ErrNoSpace) {
			t.Fatalf("%v, want that there is no room", err)
		}
		if n := messages(t, s); n != before+1 {
			t.Fatalf("the stream has %d messages, want %d and one of the payload", n, before)
		}
	}
	must(t, s.Forget(1))
	s.payloads.reclaim(t.Context(), true)
	refer(t, s, l, late)
	holds(t, s, 2, late)
	if n := messages(t, s); n != 2 {
		t.Errorf("the stream has %d messages, want both of the payload", n)
	}
	refer(t, s, l, sized(4, 800<<10))
	reference, err := l.PutReferred(givenUp)
	if n := messages(t, s); !errors.Is(err, port.ErrNoSpace) || n != 4 {
		t.Fatalf("%d messages, %v; want one of a payload without room", n, err)
	}
	must(t, s.Refer("b", givenUp.ID, reference))
	must(t, s.Discard(givenUp.ID))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 3 {
		t.Errorf("the stream has %d messages, want none of the attempt that was given up", n)
	}
}

// FuzzReference: whatever a stranger says, it is a reference that reads the same again, or none.
func FuzzReference(f *testing.F) {
	f.Add("b 1;1,2;0 0 2 1 0 1 5 7")
	f.Add("b 1;1;0 0 1 1 0 1 5 7;0 4294967297 0 9 4 2+3+4,-1 4294967298 77 1 4 5")
	f.Add("b 1;;;0 4294967297 0 9 4 2")
	id := port.RolloutID{Group: 1, Attempt: 1}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseReference(id, text)
		if err != nil {
			return
		}
		again, err := parseReference(id, r.String())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%q reads as %+v, then as %+v: %v", text, r, again, err)
		}
	})
}

// TestPutWithoutAnAnswer: a payload or a turn that is found in place of its answer may not be synced. It counts once a message
// behind it is answered, and it alone is read. The writer removes the other.
func TestPutWithoutAnAnswer(t *testing.T) {
	o := Options{URL: serverWithRights(t, "unanswered"), Run: "unanswered", CellTurns: true}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "rack.1-b")
	id := port.RolloutID{Group: 3, Sample: 1, Attempt: 1}
	sample, kept := storetest.Sample(id, 5), keepInCell(t, l, id, 0, 3<<20, 6)
	said := refer(t, s, l, sample)
	again, err := l.PutReferred(sample)
	must(t, err)
	if n := messages(t, s); again != said || n != 2 {
		t.Errorf("a payload that was found is %q in %d messages, want %q and one behind it", again, n, said)
	}
	behind := func(want int) {
		t.Helper()
		_, all, err := s.turnSubjects(t.Context(), ">")
		if must(t, err); all[port.RolloutID{Group: 3, Sample: 1, Attempt: -1}] != want {
			t.Errorf("turns are %v, want %d messages behind them", all, want)
		}
	}
	behind(0)
	l.turns.attempts[id.Group][id].last-- // as if the last had not been answered
	must(t, l.KeepTurn(id, 1, kept[1]))
	behind(1)
	next := openCell(t, o, "rack.1-b")
	readsTurns(t, next, id, kept)
	behind(1)
	readsTurns(t, next, id, kept) // its mark is found
	behind(2)
	must(t, s.Close())
	s = open(t, o)
	holds(t, s, 3, sample)
	must(t, s.Refer(l.cell, id, said))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 1 {
		t.Errorf("the stream has %d messages, want that of the payload", n)
	}
	holds(t, s, 3, sample)
	s.hearsCells.Store(true)
	must(t, s.Forget(3))
	for left := 1; left > 0; {
		_, all, err := s.turnSubjects(t.Context(), ">")
		must(t, err)
		left = len(all)
	}
}

// TestMessageToCome: a cell that names a message that is still to come has nobody's payload deleted.
func TestMessageToCome(t *testing.T) {
	o := Options{URL: serverWithRights(t, "tocome"), Run: "tocome", CacheBytes: -1}
	s := open(t, o)
	begin(t, s)
	b := openCell(t, o, "b")
	id := port.RolloutID{Group: 1, Attempt: 1}
	good, err := b.PutReferred(storetest.Sample(id, 5))
	must(t, err)
	r, err := parseReference(id, good)
	must(t, err)
	r.seqs[0] += 3
	_ = s.Refer("b", id, r.String())
	s.payloads.reclaim(t.Context(), true)
	var own []port.Sample
	for g := 2; g < 5; g++ {
		x := storetest.Sample(port.RolloutID{Group: 0, Sample: int32(g), Attempt: 1}, 5)
		must(t, s.PutSample(x))
		own = append(own, x)
	}
	must(t, s.Discard(id))
	s.payloads.reclaim(t.Context(), true)
	holds(t, s, 0, own...)
}

// TestUnsaidOfAnother: a cell that names what another has put and not said yet does not have it deleted.
func TestUnsaidOfAnother(t *testing.T) {
	o := Options{URL: serverWithRights(t, "unsaid"), Run: "unsaid", CacheBytes: -1}
	s := open(t, o)
	begin(t, s)
	b, c := openCell(t, o, "b"), openCell(t, o, "1-b")
	id, other := port.RolloutID{Group: 1, Attempt: 1}, storetest.Sample(port.RolloutID{Group: 2, Attempt: 1}, 5)
	good, err := b.PutReferred(storetest.Sample(id, 5))
	must(t, err)
	honest, err := c.PutReferred(other)
	must(t, err)
	r, err := parseReference(id, good)
	must(t, err)
	r.seqs[0]++
	_ = s.Refer("b", id, r.String())
	must(t, s.Refer("1-b", other.ID, honest))
	must(t, s.Discard(id))
	s.payloads.reclaim(t.Context(), true)
	holds(t, s, 2, other)
}
