package live_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// recording drives loop, recorder and what is counted beside a log in a store, as the
// runtime does, and takes snapshots of them.
type recording struct {
	t     testing.TB
	store *memoryStore
	now   live.Resume
	seed  uint64
}

func newRecording(t testing.TB, cfg loop.Config, seed uint64) *recording {
	t.Helper()
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rec, source := metrics.NewRecorder(l.Config()), attribution.New(l.Config())
	rec.Beside = source
	rec.Warmup, rec.StepsMax, source.Warmup = 3, live.SeriesSteps, 3
	r := &recording{t: t, store: &memoryStore{}, seed: seed,
		now: live.Resume{Loop: l, Recorder: rec, Attribution: source, Encoder: &trace.Encoder{}, Counted: live.NewCounted(cfg.Policy)}}
	r.note(trace.NoteHeader, trace.Header{Format: trace.Format, Program: "test", Source: "live", Loop: l.Config(), Warmup: 3})
	return r
}

func (r *recording) note(name string, data any) {
	r.t.Helper()
	line, err := r.now.Encoder.AppendNote(nil, name, data)
	if err != nil {
		r.t.Fatal(err)
	}
	r.append(line)
}

func (r *recording) append(line []byte) {
	r.t.Helper()
	if err := r.store.Append([][]byte{line}); err != nil {
		r.t.Fatal(err)
	}
}

// observe takes an event through everything, with measurements that follow from the
// seed and the event's number.
func (r *recording) observe(ev loop.Event) {
	rng := rand.New(rand.NewPCG(r.seed, uint64(r.now.Encoder.Seq())))
	te := trace.Event{Event: ev}
	if ev.Kind == loop.RolloutScored {
		te.GenerateNS, te.EnvironmentNS, te.VersionTokens, te.Spans, te.Resumed, te.StateLag = rng.Int64N(1e6), rng.Int64N(1e6), rng.Int64N(100), rng.IntN(4), rng.IntN(4) == 0, rng.Int64N(3)
	}
	line := r.now.Encoder.AppendEvent(nil, te)
	actions, _ := r.now.Loop.Step(ev)
	r.now.Recorder.Observe(ev, metrics.Measured{QueueGroups: r.now.Loop.QueueGroups(), VersionTokens: te.VersionTokens, EnvironmentNS: te.EnvironmentNS,
		Spans: te.Spans, Resumed: te.Resumed, StateLag: te.StateLag, Control: metrics.ControlOf(r.now.Loop, ev.Kind)}, actions)
	r.now.Counted.Observe(ev, r.now.Loop.Ledger(), actions)
	for _, a := range actions {
		line = r.now.Encoder.AppendAction(line, r.now.Encoder.Seq(), a)
	}
	r.append(line)
	if ev.Kind == loop.Recovered {
		r.now.Restarts++
	}
}

func (r *recording) state() []byte {
	r.t.Helper()
	state, err := r.now.State()
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

func (r *recording) snapshot() {
	r.t.Helper()
	if err := r.store.Snapshot(r.now.Encoder.Position().Line, r.state()); err != nil {
		r.t.Fatal(err)
	}
}

// record makes a recording of a random run, with snapshots at random places.
func record(t testing.TB, seed uint64, steps int, often float64) *recording {
	t.Helper()
	plan := looptest.Draw(seed)
	plan.Faults.Garbage, plan.Faults.Reversed = 0, 0 // times that fall, and effects of no run
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(steps); err != nil {
		t.Fatal(err)
	}
	r := newRecording(t, plan.Config, seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	for _, rec := range w.Log {
		r.observe(rec.Event)
		if rng.Float64() < often {
			r.snapshot()
		}
	}
	return r
}

// checkRecovered compares a recovered run with the one that never ended, bit for bit.
func checkRecovered(t *testing.T, what string, got *live.Resume, want *recording) {
	t.Helper()
	got.Restarts-- // this recovery's own, whose event is not in the log yet
	state, err := got.State()
	if err != nil {
		t.Fatal(err)
	}
	if other := want.state(); !bytes.Equal(state, other) {
		at := len("headway state 2 00000000\n")
		for at < min(len(state), len(other)) && state[at] == other[at] {
			at++
		}
		t.Fatalf("%s: the recovered state is another, from byte %d on:\n%.200s\n%.200s", what, at, state[max(at-100, 0):], other[max(at-100, 0):])
	}
	if got.Encoder.Position() != want.now.Encoder.Position() || got.Ended != want.now.Ended {
		t.Fatalf("%s: goes on at %+v, ended %v", what, got.Encoder.Position(), got.Ended)
	}
	a, errA := json.Marshal(got.Recorder.Summary())
	b, errB := json.Marshal(want.now.Recorder.Summary())
	if errors.Join(errA, errB) != nil || !bytes.Equal(a, b) {
		t.Fatalf("%s: %v %v\n%s\n%s", what, errA, errB, a, b)
	}
	if c, d := got.Attribution.Summary(), want.now.Attribution.Summary(); !reflect.DeepEqual(c, d) {
		t.Errorf("%s: the attribution is %+v, want %+v", what, c, d)
	}
	if !slices.Equal(got.Recorder.Steps, want.now.Recorder.Steps) {
		t.Fatalf("%s: the series differ", what)
	}
}

// TestRecoveryEqualsReplay: from whichever snapshot a random run is recovered, or from
// none, it is bit for bit the run that was never interrupted.
func TestRecoveryEqualsReplay(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15 // one goroutine: the race detector has little to find, and takes ten times as long
	}
	from, replayed := 0, int64(0)
	for seed := range uint64(seeds) {
		r := record(t, seed, 400, 0.03)
		if seed%3 == 0 {
			r.note(trace.NoteEnd, nil)
			r.now.Ended = true
			if seed%2 == 0 {
				r.snapshot() // as of the end itself
			}
		}
		for {
			lines := slices.Sorted(maps.Keys(r.store.snapshots))
			got, err := live.Recover(r.store, nil)
			if err != nil {
				t.Fatalf("seed %d, %d snapshots: %v", seed, len(lines), err)
			}
			if len(lines) > 0 && got.SnapshotLine != lines[len(lines)-1] || len(got.PassedOver) > 0 {
				t.Fatalf("seed %d: recovered from line %d of %v, passed over %v", seed, got.SnapshotLine, lines, got.PassedOver)
			}
			if got.SnapshotEvent+got.Events != r.now.Encoder.Seq() {
				t.Fatalf("seed %d: replayed %d events after event %d of %d", seed, got.Events, got.SnapshotEvent, r.now.Encoder.Seq())
			}
			checkRecovered(t, fmt.Sprintf("seed %d from line %d", seed, got.SnapshotLine), got, r)
			replayed += got.Events
			if len(lines) == 0 {
				break
			}
			delete(r.store.snapshots, lines[len(lines)-1])
			from++
		}
	}
	if from < 5*seeds || replayed < int64(166*seeds) {
		t.Errorf("recovered from %d snapshots, replayed %d events: too few to say anything", from, replayed)
	}
}

// reseal gives a changed state a checksum that matches.
func reseal(state []byte) []byte {
	_, document, _ := bytes.Cut(state, []byte("\n"))
	return append(fmt.Appendf(nil, "headway state 2 %08x\n", crc32.Checksum(document, crc32.MakeTable(crc32.Castagnoli))), document...)
}

// TestSnapshotsPassedOver: what cannot be used of the newest snapshot is a reason to
// take the one before, and the whole log without any; the run is the same.
func TestSnapshotsPassedOver(t *testing.T) {
	another := record(t, 5, 200, 0)
	replace := func(old, new string) func([]byte) []byte {
		return func(state []byte) []byte {
			changed := bytes.Replace(state, []byte(old), []byte(new), 1)
			if bytes.Equal(changed, state) {
				t.Fatalf("no %q in %.300s", old, state)
			}
			return changed
		}
	}
	resealed := func(old, new string) func([]byte) []byte {
		return func(state []byte) []byte { return reseal(replace(old, new)(state)) }
	}
	for what, c := range map[string]struct {
		change func([]byte) []byte
		why    string
	}{
		"damaged":                     {func(s []byte) []byte { s[len(s)/2] ^= 1; return s }, "checksum"},
		"cut":                         {func(s []byte) []byte { return s[:len(s)-1] }, "checksum"},
		"no snapshot":                 {func([]byte) []byte { return []byte("something else") }, "not a state"},
		"empty":                       {func([]byte) []byte { return []byte{} }, "not a state"},
		"another version":             {replace("headway state 2 ", "headway state 3 "), "version 3"},
		"another version of the loop": {resealed(`{"Snapshot":`, `{"Snapshot":9`), "snapshot version 9"},
		"other rules":                 {resealed(`"TrainSteps":`, `"TrainSteps":1`), "other rules"},
		"no JSON":                     {resealed(`{"position"`, `{"position`), "unreadable"},
		"no recorder":                 {resealed(`"recorder":"`, `"recorder":"AAAA`), "recorder"},
		"of another line":             {resealed(`"line":`, `"line":1`), "as of line 1"},
		"of another log":              {func([]byte) []byte { return another.state() }, ""},
	} {
		whole := record(t, 4, 300, 0)
		events := eventsOf(t, whole.store)
		r := newRecording(t, whole.now.Loop.Config(), 4)
		for i, ev := range events {
			r.observe(ev)
			if i == len(events)/3 || i == 2*len(events)/3 {
				r.snapshot()
			}
		}
		lines := slices.Sorted(maps.Keys(r.store.snapshots))
		newest := lines[len(lines)-1]
		r.store.snapshots[newest] = c.change(bytes.Clone(r.store.snapshots[newest]))
		got, err := live.Recover(r.store, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got.SnapshotLine != lines[0] || len(got.PassedOver) != 1 || !strings.Contains(got.PassedOver[0], c.why) {
			t.Errorf("%s: recovered from line %d of %v, passed over %v", what, got.SnapshotLine, lines, got.PassedOver)
		}
		checkRecovered(t, what, got, r)
		r.store.snapshots[lines[0]] = r.store.snapshots[newest]
		if got, err = live.Recover(r.store, nil); err != nil || got.SnapshotLine != 0 || len(got.PassedOver) != 2 {
			t.Errorf("%s, both of them: %v, %+v", what, err, got)
			continue
		}
		checkRecovered(t, what+", both of them", got, r)
	}
}

// eventsOf returns the events of a store's log.
func eventsOf(t *testing.T, s *memoryStore) (events []loop.Event) {
	t.Helper()
	r, err := trace.NewReader(bytes.NewReader(s.log.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event != nil {
			events = append(events, rec.Event.Event)
		}
	}
}

// TestSnapshotAheadOfTheLog: a log that lost its end behind a snapshot cannot be that
// snapshot's; the one before is taken, and what is left of the log after it.
func TestSnapshotAheadOfTheLog(t *testing.T) {
	whole := record(t, 7, 300, 0.02)
	lines := slices.Sorted(maps.Keys(whole.store.snapshots))
	newest := lines[len(lines)-1]
	log := bytes.SplitAfter(whole.store.log.Bytes(), []byte("\n"))
	cut := &memoryStore{snapshots: whole.store.snapshots}
	cut.log.Write(bytes.Join(log[:newest-1], nil))
	got, err := live.Recover(cut, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.SnapshotLine != lines[len(lines)-2] || len(got.PassedOver) != 1 || got.Encoder.Position().Line != newest-1 {
		t.Errorf("recovered from line %d of %v to %d, passed over %v", got.SnapshotLine, lines, got.Encoder.Position().Line, got.PassedOver)
	}
}

// TestDamagedLog: damage after the newest snapshot is an error that says where, with
// every snapshot tried; before it, nothing that is needed.
func TestDamagedLog(t *testing.T) {
	for _, after := range []bool{true, false} {
		r := record(t, 8, 300, 0.02)
		lines := slices.Sorted(maps.Keys(r.store.snapshots))
		at := lines[len(lines)-1] + 2
		if !after {
			at = lines[len(lines)-1] - 3
		}
		log := bytes.SplitAfter(r.store.log.Bytes(), []byte("\n"))
		log[at-1][9] ^= 1 // aliases the store's
		got, err := live.Recover(r.store, nil)
		if !after {
			if err != nil {
				t.Error(err)
			} else {
				checkRecovered(t, "damaged before", got, r)
			}
			continue
		}
		var where *trace.Error
		if !errors.As(err, &where) || int64(where.Line) != at || !errors.Is(err, trace.ErrChecksum) || !strings.Contains(err.Error(), fmt.Sprint("line ", lines[0])) {
			t.Errorf("%v, want line %d, and the snapshots that were tried", err, at)
		}
	}
}

// trimmed is a store whose log has given up its first lines.
type trimmed struct {
	*memoryStore
	from int64
}

func (s trimmed) ReadLog(line int64) (io.ReadCloser, error) {
	if line < s.from {
		return nil, fmt.Errorf("lines before %d: %w", s.from, port.ErrLogTrimmed)
	}
	return s.memoryStore.ReadLog(line)
}

// TestTrimmedLog: a bounded log has what comes after its oldest snapshot, and that is
// enough; without a snapshot that can be used the error says what is missing.
func TestTrimmedLog(t *testing.T) {
	r := record(t, 9, 300, 0.02)
	lines := slices.Sorted(maps.Keys(r.store.snapshots))
	newest := lines[len(lines)-1]
	got, err := live.Recover(trimmed{r.store, newest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkRecovered(t, "trimmed", got, r)
	r.store.snapshots = map[int64][]byte{newest: []byte("damaged")}
	if _, err := live.Recover(trimmed{r.store, newest}, nil); !errors.Is(err, port.ErrLogTrimmed) || !strings.Contains(err.Error(), "not a state") {
		t.Errorf("without a snapshot: %v", err)
	}
	if _, err := live.Recover(&memoryStore{}, nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty log: %v", err)
	}
}

// TestRecoverySaysHowLong: by the clock that it is given.
func TestRecoverySaysHowLong(t *testing.T) {
	r := record(t, 10, 100, 0)
	at := int64(math.MaxInt32)
	got, err := live.Recover(r.store, func() int64 { at += 25e8; return at })
	if err != nil || got.Seconds != 2.5 {
		t.Errorf("%v s, %v", got.Seconds, err)
	}
}
