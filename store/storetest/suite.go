// Package storetest is the conformance suite of port.Store: every store passes it.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// PayloadBytesMax is the bound on payloads that every store of the suite is opened with.
const PayloadBytesMax = 4 << 20

// Place is where one run is kept.
type Place struct {
	// Open opens the run as its writer, for the first time or after its store was closed.
	Open func(t *testing.T) port.Store
	// Damage changes a bit of the snapshot as of a line, behind an open store's back.
	Damage func(t *testing.T, s port.Store, line int64)
}

// Run runs the suite; each test has a place of its own.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, p Place)
	}{
		{"Log", testLog}, {"LogOpenedAgain", testLogOpenedAgain}, {"LargeLines", testLargeLines}, {"Header", testHeader},
		{"Payloads", testPayloads}, {"PayloadsOpenedAgain", testPayloadsOpenedAgain}, {"LargePayload", testLargePayload},
		{"Retain", testRetain}, {"Limit", testLimit}, {"Snapshots", testSnapshots}, {"DamagedSnapshot", testDamagedSnapshot},
		{"DamagedIsNotKept", testDamagedIsNotKept},
		{"Concurrent", testConcurrent}, {"Closed", testClosed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, place(t)) })
	}
}

// Rules are those of the suite's runs.
var Rules = loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1}

// Header is the header line of a run, and the encoder that goes on after it.
func Header(t testing.TB) ([]byte, *trace.Encoder) {
	t.Helper()
	enc := &trace.Encoder{}
	line, err := enc.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format, Program: "test", Source: "live", Seed: 7, Loop: Rules, Config: "seed: 7\n"})
	if err != nil {
		t.Fatal(err)
	}
	return line, enc
}

// Event is a line of an event.
func Event(enc *trace.Encoder, at int64) []byte {
	return enc.AppendEvent(nil, trace.Event{Event: loop.Event{Time: at, Kind: loop.RolloutScored, Group: 1, Slot: 1, Attempt: 1, Tokens: 5, Reward: 0.5}})
}

// Sample is a payload of so many tokens; its contents follow from its identity.
func Sample(id port.RolloutID, tokens int) port.Sample {
	s := port.Sample{ID: id, Reward: 0.75, Exact: true, Truncated: id.Sample == 1, Resumes: []port.ResumePoint{{At: 3, Version: 4}},
		Prompt: "ab", Response: "ba\n", Answer: "bä", GenerateNS: 12345678901, EnvironmentNS: 42 + int64(id.Attempt)}
	if tokens > 0 {
		s.Tokens, s.LossMask, s.Logprobs, s.Versions = make([]int32, tokens), make([]uint8, tokens), make([]float32, tokens), make([]loop.Version, tokens)
	}
	for i := range tokens {
		s.Tokens[i] = int32(i) * int32(id.Group%1000+1)
		s.LossMask[i] = uint8(min(i, 1))
		s.Logprobs[i] = -float32(i%100) / 8 * float32(min(i, 1))
		s.Versions[i] = loop.Version(i % 7)
	}
	if s.Derived = id.Sample == 1; s.Derived && tokens > 4 {
		s.Breaks = []int32{2, 4}
		s.Agents = []port.Agent{{Name: "a"}, {Name: "b", Untrained: true}, {Name: "a"}}
	}
	return s
}

func id(group loop.GroupID, sample, attempt int32) port.RolloutID {
	return port.RolloutID{Group: group, Sample: sample, Attempt: attempt}
}

// begin opens a run and appends its header and n events.
func begin(t *testing.T, p Place, n int) (port.Store, *trace.Encoder, []byte) {
	t.Helper()
	s := p.Open(t)
	line, enc := Header(t)
	all := bytes.Clone(line)
	must(t, s.Append([][]byte{line}))
	for i := range n {
		line := Event(enc, int64(i))
		all = append(all, line...)
		must(t, s.Append([][]byte{line}))
	}
	return s, enc, all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the log after so many lines.
func read(t *testing.T, s port.Store, line int64) []byte {
	t.Helper()
	r, err := s.ReadLog(line)
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(t, err)
	return text
}

// after returns what follows the first n lines of a text.
func after(text []byte, n int64) []byte {
	for range n {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return text
}

func checkLog(t *testing.T, s port.Store, all []byte) {
	t.Helper()
	lines := int64(bytes.Count(all, []byte("\n")))
	for _, line := range []int64{0, 1, lines / 2, lines - 1, lines} {
		if got, want := read(t, s, line), after(all, line); !bytes.Equal(got, want) {
			t.Fatalf("the log after %d of %d lines has %d bytes, want %d", line, lines, len(got), len(want))
		}
	}
	if r, err := s.ReadLog(lines + 1); err == nil {
		r.Close()
		t.Errorf("the log was read from after its end, line %d", lines+1)
	}
}

// Lines come back as they were appended, in their order, however they were handed over.
func testLog(t *testing.T, p Place) {
	s, enc, all := begin(t, p, 3)
	var several [][]byte
	for i := range 5 {
		several = append(several, Event(enc, int64(10+i)))
	}
	must(t, s.Append(several))
	all = append(all, bytes.Join(several, nil)...)
	joined := append(Event(enc, 20), Event(enc, 21)...) // two lines in one element
	must(t, s.Append([][]byte{joined, Event(enc, 22)}))
	all = append(all, joined...)
	must(t, s.Append(nil))
	text := read(t, s, 0)
	if all = append(all, text[len(all):]...); bytes.Count(all, []byte("\n")) != 12 {
		t.Fatalf("%d lines, want 12", bytes.Count(all, []byte("\n")))
	}
	checkLog(t, s, all)
	if r, err := trace.NewReader(bytes.NewReader(text)); err != nil {
		t.Error(err)
	} else {
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) || r.Position().Seq != 11 {
			t.Errorf("the log reads to event %d: %v", r.Position().Seq, err)
		}
	}
	must(t, s.Close())
}

// A run that is opened again goes on where it ended, as often as that may be.
func testLogOpenedAgain(t *testing.T, p Place) {
	s, enc, all := begin(t, p, 2)
	for i := range 3 {
		must(t, s.Close())
		s = p.Open(t)
		checkLog(t, s, all)
		line := Event(enc, int64(100+i))
		all = append(all, line...)
		must(t, s.Append([][]byte{line}))
		checkLog(t, s, all)
	}
	must(t, s.Close())
}

// A line may be longer than what a store writes at once.
func testLargeLines(t *testing.T, p Place) {
	s, enc, all := begin(t, p, 1)
	for i, size := range []int{100, 300_000, 1_500_000, 50} {
		note, err := enc.AppendNote(nil, "large", bytes.Repeat([]byte{byte(i)}, size))
		must(t, err)
		lines := [][]byte{note, Event(enc, int64(i))}
		must(t, s.Append(lines))
		all = append(all, bytes.Join(lines, nil)...)
	}
	checkLog(t, s, all)
	must(t, s.Close())
	s = p.Open(t)
	checkLog(t, s, all)
	must(t, s.Close())
}

func testHeader(t *testing.T, p Place) {
	s := p.Open(t)
	if h, ok := s.Header(); ok {
		t.Errorf("a run that has not begun has the header %v", h)
	}
	line, _ := Header(t)
	must(t, s.Append([][]byte{line}))
	for range 2 {
		if h, ok := s.Header(); !ok || h.Seed != 7 || h.Config != "seed: 7\n" {
			t.Errorf("the header is %v (%v)", h, ok)
		}
		must(t, s.Close())
		s = p.Open(t)
	}
	must(t, s.Close())
}

// Same reports whether samples are the same. Reflection over each token was a seventh of these tests' time under the race
// detector.
func Same(a, b []port.Sample) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if !slices.Equal(x.Tokens, y.Tokens) || !slices.Equal(x.LossMask, y.LossMask) || !slices.Equal(x.Logprobs, y.Logprobs) || !slices.Equal(x.Versions, y.Versions) {
			return false
		}
		x.Tokens, x.LossMask, x.Logprobs, x.Versions = x.Tokens[:0], x.LossMask[:0], x.Logprobs[:0], x.Versions[:0]
		y.Tokens, y.LossMask, y.Logprobs, y.Versions = y.Tokens[:0], y.LossMask[:0], y.Logprobs[:0], y.Versions[:0]
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

func checkSamples(t *testing.T, s port.Store, group loop.GroupID, want ...port.Sample) {
	t.Helper()
	got, err := s.Samples(group)
	if len(want) == 0 {
		if err == nil {
			t.Fatalf("group %d has %d payloads, want an error that says it has none", group, len(got))
		}
		return
	}
	must(t, err)
	if !Same(got, want) {
		t.Fatalf("group %d comes back as %d payloads that differ from the %d put", group, len(got), len(want))
	}
}

// Payloads come back as they were put, by sample; a later attempt replaces an earlier
// one; discarding and forgetting take away what they name and nothing else.
func testPayloads(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 1)
	checkSamples(t, s, 1)
	for _, k := range []int32{2, 0, 1} {
		must(t, s.PutSample(Sample(id(1, k, 1), 5+int(k))))
		must(t, s.PutSample(Sample(id(2, k, 1), 50)))
	}
	first := []port.Sample{Sample(id(1, 0, 1), 5), Sample(id(1, 1, 1), 6), Sample(id(1, 2, 1), 7)}
	checkSamples(t, s, 1, first...)
	must(t, s.PutSample(Sample(id(1, 1, 2), 9)))
	checkSamples(t, s, 1, first[0], Sample(id(1, 1, 2), 9), first[2])
	must(t, s.Discard(id(1, 1, 1))) // was replaced
	checkSamples(t, s, 1, first[0], Sample(id(1, 1, 2), 9), first[2])
	must(t, s.Discard(id(1, 1, 2)))
	must(t, s.Discard(id(7, 7, 7)))
	checkSamples(t, s, 1, first[0], first[2])
	must(t, s.Forget(1))
	must(t, s.Forget(1))
	must(t, s.Forget(99))
	checkSamples(t, s, 1)
	checkSamples(t, s, 2, Sample(id(2, 0, 1), 50), Sample(id(2, 1, 1), 50), Sample(id(2, 2, 1), 50))
	bad := Sample(id(3, 0, 1), 5)
	bad.Versions = bad.Versions[1:]
	if err := s.PutSample(bad); err == nil {
		t.Error("a payload with fewer versions than tokens was taken")
	}
	must(t, s.Close())
}

func testPayloadsOpenedAgain(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 1)
	for g := loop.GroupID(1); g <= 20; g++ {
		for k := range int32(3) {
			must(t, s.PutSample(Sample(id(g, k, 1), 10)))
		}
		must(t, s.PutSample(Sample(id(g, 2, 2), 11)))
	}
	must(t, s.Close())
	s = p.Open(t)
	for g := loop.GroupID(1); g <= 20; g++ {
		checkSamples(t, s, g, Sample(id(g, 0, 1), 10), Sample(id(g, 1, 1), 10), Sample(id(g, 2, 2), 11))
	}
	must(t, s.PutSample(Sample(id(21, 0, 1), 10)))
	checkSamples(t, s, 21, Sample(id(21, 0, 1), 10))
	must(t, s.Close())
}

// A group of 1.5 MB, and one payload of that size.
func testLargePayload(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 1)
	var want []port.Sample
	for k := range int32(8) {
		want = append(want, Sample(id(1, k, 1), 18_000))
		must(t, s.PutSample(want[k]))
	}
	checkSamples(t, s, 1, want...)
	large := Sample(id(2, 0, 1), 150_000)
	must(t, s.PutSample(large))
	checkSamples(t, s, 2, large)
	must(t, s.Close())
	s = p.Open(t)
	checkSamples(t, s, 2, large)
	checkSamples(t, s, 1, want...)
	must(t, s.Close())
}

func testRetain(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 1)
	for g := loop.GroupID(1); g <= 3; g++ {
		for k := range int32(2) {
			must(t, s.PutSample(Sample(id(g, k, 1), 10)))
		}
	}
	must(t, s.Close())
	s = p.Open(t)
	dropped, err := s.Retain(func(r port.RolloutID) bool { return r.Group == 2 || r == id(3, 1, 1) })
	must(t, err)
	if dropped != 3 {
		t.Errorf("%d payloads were dropped, want 3", dropped)
	}
	checkSamples(t, s, 1)
	checkSamples(t, s, 2, Sample(id(2, 0, 1), 10), Sample(id(2, 1, 1), 10))
	checkSamples(t, s, 3, Sample(id(3, 1, 1), 10))
	must(t, s.Close())
}

// At the bound a payload is refused with an error of its own, nothing else is harmed, and
// room that is made is used again: many times the bound goes through.
func testLimit(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 1)
	refused, oldest := 0, loop.GroupID(1)
	const groups = 80 // four times the bound
	for g := loop.GroupID(1); g <= groups; g++ {
		sample := Sample(id(g, 0, 1), 20_000) // some 200 kB
		err := s.PutSample(sample)
		for ; errors.Is(err, port.ErrNoSpace); err = s.PutSample(sample) {
			refused++
			if oldest == g {
				t.Fatalf("group %d does not fit into an empty store: %v", g, err)
			}
			checkSamples(t, s, oldest, Sample(id(oldest, 0, 1), 20_000))
			must(t, s.Forget(oldest))
			oldest++
		}
		must(t, err)
	}
	if refused == 0 {
		t.Error("the bound was never reached")
	}
	for ; oldest <= groups; oldest++ {
		checkSamples(t, s, oldest, Sample(id(oldest, 0, 1), 20_000))
	}
	must(t, s.Close())
}

func testSnapshots(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 9)
	if line, state, err := s.ReadSnapshot(math.MaxInt64); err != nil || state != nil {
		t.Errorf("a snapshot of line %d before there was one (%v)", line, err)
	}
	large := bytes.Repeat([]byte("state"), 500_000)
	states := map[int64][]byte{2: []byte("two"), 5: large, 8: []byte("eight")}
	for _, line := range []int64{2, 5, 8} {
		must(t, s.Snapshot(line, states[line]))
		checkSnapshot(t, s, math.MaxInt64, line, states[line])
	}
	checkSnapshot(t, s, 8, 5, large)
	must(t, s.Snapshot(8, []byte("eight again")))
	must(t, s.Close())
	s = p.Open(t)
	checkSnapshot(t, s, math.MaxInt64, 8, []byte("eight again"))
	checkSnapshot(t, s, 8, 5, large)
	r, err := s.ReadLog(5)
	must(t, err)
	text, err := io.ReadAll(r)
	if must(t, err); bytes.Count(text, []byte("\n")) != 5 {
		t.Errorf("%d lines after the older snapshot, want 5", bytes.Count(text, []byte("\n")))
	}
	must(t, r.Close())
	must(t, s.Close())
}

func checkSnapshot(t *testing.T, s port.Store, before, line int64, state []byte) {
	t.Helper()
	got, text, err := s.ReadSnapshot(before)
	must(t, err)
	if got != line || !bytes.Equal(text, state) {
		t.Errorf("the newest snapshot before line %d is of line %d with %d bytes, want line %d with %d", before, got, len(text), line, len(state))
	}
}

// A damaged snapshot is said by its line, and the one before it is there.
func testDamagedSnapshot(t *testing.T, p Place) {
	s, _, _ := begin(t, p, 5)
	must(t, s.Snapshot(2, []byte("two")))
	must(t, s.Snapshot(4, []byte("four")))
	p.Damage(t, s, 4)
	checkDamaged(t, s, math.MaxInt64, 4)
	checkSnapshot(t, s, 4, 2, []byte("two"))
	p.Damage(t, s, 2)
	checkDamaged(t, s, 4, 2)
	if line, state, err := s.ReadSnapshot(2); err != nil || state != nil {
		t.Errorf("both snapshots are damaged, and that of line %d was read (%v)", line, err)
	}
	must(t, s.Close())
}

func checkDamaged(t *testing.T, s port.Store, before, line int64) {
	t.Helper()
	if got, state, err := s.ReadSnapshot(before); got != line || state != nil || !errors.Is(err, port.ErrSnapshotDamaged) {
		t.Errorf("the newest snapshot before line %d is of line %d with %d bytes (%v), want line %d, damaged", before, got, len(state), err, line)
	}
}

// A damaged snapshot does not count among the two that are kept: the good one before it stays until two newer ones
// are there, and the log after it too.
func testDamagedIsNotKept(t *testing.T, p Place) {
	s, enc, all := begin(t, p, 5)
	states := map[int64][]byte{2: []byte("two"), 4: []byte("four"), 6: []byte("six"), 7: []byte("seven")}
	must(t, s.Snapshot(2, states[2]))
	must(t, s.Snapshot(4, states[4]))
	p.Damage(t, s, 4)
	for range 2 {
		line := Event(enc, 100)
		all = append(all, line...)
		must(t, s.Append([][]byte{line}))
	}
	must(t, s.Snapshot(6, states[6]))
	checkSnapshot(t, s, math.MaxInt64, 6, states[6])
	checkSnapshot(t, s, 4, 2, states[2])
	must(t, s.Close())
	s = p.Open(t)
	checkSnapshot(t, s, 4, 2, states[2])
	if got, want := read(t, s, 2), after(all, 2); !bytes.Equal(got, want) {
		t.Errorf("the log after the older good snapshot has %d bytes, want %d", len(got), len(want))
	}
	p.Damage(t, s, 2)
	p.Damage(t, s, 6)
	must(t, s.Snapshot(7, states[7]))
	checkSnapshot(t, s, math.MaxInt64, 7, states[7])
	if line, state, err := s.ReadSnapshot(7); err != nil || state != nil {
		t.Errorf("the damaged snapshots stay: that of line %d was found (%v)", line, err)
	}
	must(t, s.Close())
}

// Everything at once, as a run does it.
func testConcurrent(t *testing.T, p Place) {
	s, enc, all := begin(t, p, 1)
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := range 30 {
				g := loop.GroupID(1 + worker*100 + i)
				want := []port.Sample{Sample(id(g, 0, 1), 20), Sample(id(g, 1, 1), 20)}
				for _, sample := range want {
					if err := s.PutSample(sample); err != nil {
						t.Error(err)
						return
					}
				}
				got, err := s.Samples(g)
				if err != nil || !Same(got, want) {
					t.Errorf("group %d: %d payloads (%v)", g, len(got), err)
					return
				}
				if err := s.Forget(g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 50 {
		line := Event(enc, int64(i))
		all = append(all, line...)
		must(t, s.Append([][]byte{line}))
		if i%20 == 10 {
			must(t, s.Snapshot(int64(i), fmt.Append(nil, i)))
		}
	}
	wait.Wait()
	if got := read(t, s, 30); !bytes.Equal(got, after(all, 30)) {
		t.Error("the log's lines are not those appended")
	}
	must(t, s.Close())
}

// A closed store says so, and closing it again is no error.
func testClosed(t *testing.T, p Place) {
	s, enc, _ := begin(t, p, 1)
	must(t, s.PutSample(Sample(id(1, 0, 1), 5)))
	must(t, s.Close())
	must(t, s.Close())
	if err := s.Append([][]byte{Event(enc, 1)}); err == nil {
		t.Error("a closed store appends")
	}
	if err := s.PutSample(Sample(id(2, 0, 1), 5)); err == nil {
		t.Error("a closed store takes payloads")
	}
	if _, err := s.Samples(1); err == nil {
		t.Error("a closed store has payloads")
	}
}
