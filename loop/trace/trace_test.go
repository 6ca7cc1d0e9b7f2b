package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

var header = trace.Header{Program: "headway test", Source: "simulation", Seed: 9, Config: "seed: 9\n",
	Loop: loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{3, 1}, QueueGroups: 4, Policy: loop.PolicyMax, MaxStaleness: 3}}

// write returns a trace with every kind of event and action, and the records a
// reader should make of it.
func write(t testing.TB, events int, seed uint64) ([]byte, []trace.Record) {
	t.Helper()
	var buf bytes.Buffer
	w, err := trace.NewWriter(&buf, header)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	var want []trace.Record
	for range events {
		ev := randomEvent(rng)
		actions := make([]loop.Action, rng.IntN(3))
		for i := range actions {
			actions[i] = randomAction(rng)
		}
		w.Event(ev, actions)
		want = append(want, trace.Record{Event: &ev})
		for i := range actions {
			want = append(want, trace.Record{Action: &actions[i]})
		}
		if rng.IntN(4) == 0 {
			step := trace.Step{Lease: 3, Tokens: 5, NS: rng.Int64()}
			data, err := json.Marshal(step)
			if err != nil {
				t.Fatal(err)
			}
			w.Note(trace.NoteStep, step)
			want = append(want, trace.Record{Note: trace.NoteStep, Data: data})
		}
	}
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	seq := int64(0)
	for i := range want {
		if want[i].Event != nil {
			seq++
		}
		want[i].Seq, want[i].Line = seq, i+2
	}
	return buf.Bytes(), append(want, trace.Record{Note: trace.NoteEnd, Data: json.RawMessage("null"), Seq: seq, Line: len(want) + 2})
}

func randomEvent(rng *rand.Rand) trace.Event {
	small := func() int32 { return rng.Int32N(1 << uint(rng.IntN(31))) }
	ev := trace.Event{Event: loop.Event{
		Time: rng.Int64(), Kind: loop.RunStarted + loop.EventKind(rng.IntN(int(loop.RolloutInterrupted))), Mark: loop.Mark(rng.IntN(int(loop.MarkPruned) + 1)),
		Reason: loop.Reason(rng.IntN(int(loop.ReasonRequested) + 1)), Engine: small(), Slot: small(), Sample: small(), Attempt: small(),
		Tokens: small(), Setting: loop.Setting(rng.IntN(int(loop.SettingEngines) + 1)), Reward: float32(rng.NormFloat64()), Drift: float32(rng.IntN(2)) * rng.Float32(), Group: loop.GroupID(rng.Int64()), Lease: loop.LeaseID(small()), Version: loop.Version(small()) - 1,
	}, GenerateNS: rng.Int64(), EnvironmentNS: int64(small()), VersionTokens: int64(small()), Spans: rng.IntN(3), Resumed: rng.IntN(2) == 0, StateLag: rng.Int64N(2)}
	if rng.IntN(3) == 0 {
		ev.Origin = trace.Origin{Cell: "b-2", Incarnation: int64(small()), Sequence: rng.Int64()}
	}
	for range rng.IntN(3) {
		ev.Made = append(ev.Made, loop.VersionTokens{Version: loop.Version(small()) - 1, Tokens: int64(small()) - 1})
	}
	if rng.IntN(3) == 0 {
		ev.Reward = 0
	}
	return ev
}

func randomAction(rng *rand.Rand) loop.Action {
	small := func() int32 { return rng.Int32N(1 << uint(rng.IntN(31))) }
	return loop.Action{
		Kind: loop.StartRollout + loop.ActionKind(rng.IntN(int(loop.ControlChanged))), Setting: loop.Setting(rng.IntN(int(loop.SettingEngines) + 1)),
		Control: loop.ControlState(rng.IntN(int(loop.ControlSilent) + 1)), Value: float64(rng.IntN(2)) * rng.NormFloat64(), End: loop.End(rng.IntN(int(loop.EndFailed) + 1)),
		Reason: loop.Reason(rng.IntN(int(loop.ReasonRequested) + 1)), Engine: small(), Slot: small(), Sample: small(), Attempt: small(), Count: small(),
		Group: loop.GroupID(rng.Int64()), Lease: loop.LeaseID(small()), Version: loop.Version(small()) - 1,
		StartVersion: loop.Version(small()) - 1, ReadyVersion: loop.Version(small()) - 1, Prompt: rng.Int64N(3), Level: small() % 3,
	}
}

// read returns all records, or the error that ended them.
func read(data []byte) (trace.Header, []trace.Record, *trace.Encoder, error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		return trace.Header{}, nil, nil, err
	}
	var records []trace.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header, records, r.Encoder(), nil
		}
		if err != nil {
			return r.Header, records, r.Encoder(), err
		}
		rec.Data = bytes.Clone(rec.Data)
		records = append(records, rec)
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(50) {
		data, want := write(t, 40, seed)
		h, got, _, err := read(data)
		if err != nil {
			t.Fatal(err)
		}
		if h.Format != trace.Format || h.Seed != 9 || !reflect.DeepEqual(h.Loop, header.Loop) || h.Config != header.Config {
			t.Fatalf("header %+v", h)
		}
		if len(got) != len(want) {
			t.Fatalf("%d records, want %d", len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("record %d of seed %d:\ngot  %+v %+v\nwant %+v %+v", i, seed, got[i], got[i].Event, want[i], want[i].Event)
			}
		}
	}
}

// A reward that is no number stays one: the loop decides by it.
func TestRewardsThatAreNoNumbers(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var buf bytes.Buffer
		w, err := trace.NewWriter(&buf, header)
		if err != nil {
			t.Fatal(err)
		}
		w.Event(trace.Event{Event: loop.Event{Kind: loop.RolloutScored, Reward: float32(v)}}, nil)
		_, got, _, err := read(buf.Bytes())
		if err != nil || !math.IsNaN(float64(got[0].Event.Reward)) {
			t.Errorf("%v came back as %v (%v)", v, got, err)
		}
	}
}

// Whatever byte of a trace changes, reading it fails.
func TestEveryFlippedByteIsFound(t *testing.T) {
	data, _ := write(t, 5, 3)
	for i := range data {
		for _, mask := range []byte{1, 0x20, 0x80} {
			changed := bytes.Clone(data)
			changed[i] ^= mask
			if _, _, _, err := read(changed); err == nil {
				t.Fatalf("byte %d of %d flipped by %#x was not noticed: %q", i, len(data), mask, data[max(0, i-20):i+1])
			}
		}
	}
}

// A line that is missing, repeated or moved is found at the place.
func TestLinesOutOfOrderAreFound(t *testing.T) {
	data, _ := write(t, 6, 4)
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines = lines[:len(lines)-1]
	for i := 1; i+1 < len(lines); i++ {
		for what, changed := range map[string][][]byte{
			"missing":  append(append([][]byte{}, lines[:i]...), lines[i+1:]...),
			"repeated": append(append(append([][]byte{}, lines[:i+1]...), lines[i]), lines[i+1:]...),
			"swapped":  append(append(append([][]byte{}, lines[:i]...), lines[i+1], lines[i]), lines[i+2:]...),
		} {
			_, _, _, err := read(bytes.Join(changed, nil))
			var at *trace.Error
			if !errors.As(err, &at) || !errors.Is(err, trace.ErrChecksum) || at.Line < i || at.Line > i+2 {
				t.Errorf("line %d %s: %v", i+1, what, err)
			}
		}
	}
}

// A file that ends in the middle of a line is torn there, and an encoder goes on
// from the last whole line.
func TestTornTail(t *testing.T) {
	data, _ := write(t, 8, 5)
	first := bytes.IndexByte(data, '\n') + 1
	for cut := range data {
		_, _, enc, err := read(data[:cut])
		whole := bytes.LastIndexByte(data[:cut], '\n') + 1
		var at *trace.Error
		switch {
		case cut == 0:
			if err == nil || errors.As(err, &at) && at.Torn {
				t.Fatalf("an empty trace: %v", err)
			}
		case cut == whole:
			if err != nil {
				t.Fatalf("cut at the end of a line, byte %d: %v", cut, err)
			}
		case !errors.As(err, &at) || !at.Torn || at.Offset != int64(whole) || at.Line != bytes.Count(data[:cut], []byte("\n"))+1:
			t.Fatalf("cut at byte %d: %v, want a torn line at byte %d", cut, err, whole)
		}
		if whole < first {
			continue
		}
		resumed := enc.AppendEvent(bytes.Clone(data[:whole]), trace.Event{Event: loop.Event{Kind: loop.Recovered}})
		if _, got, _, err := read(resumed); err != nil || got[len(got)-1].Event.Kind != loop.Recovered {
			t.Fatalf("resumed after byte %d: %v", whole, err)
		}
	}
}

func TestWhatIsNoTraceIsRefused(t *testing.T) {
	other, err := (&trace.Encoder{}).AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format + 1, Program: "headway 99"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                          "empty",
		"hello\n":                   "line 1",
		"{\"step\":1}\n":            "this is no Headway trace",
		strings.Repeat("x", 17<<20): "this is no Headway trace",
		string((&trace.Encoder{}).AppendEvent(nil, trace.Event{Event: loop.Event{Kind: loop.Tick}})): "no header",
		string(other): "headway 99",
	} {
		if _, _, _, err := read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want it to say %q", text, err, want)
		}
	}
	if _, err := (&trace.Encoder{}).AppendNote(nil, `a"b`, nil); err == nil {
		t.Error("a note's name with a quote was taken")
	}
	if _, err := (&trace.Encoder{}).AppendNote(nil, "x", math.NaN()); err == nil {
		t.Error("a note that is no JSON was taken")
	}
}

// seal ends lines as an encoder does, whatever is in them.
func seal(lines ...string) []byte {
	sum := uint32(0)
	var out []byte
	for _, l := range lines {
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), []byte(l))
		out = fmt.Appendf(out, "%s,\"crc\":\"%08x\"}\n", l, sum)
	}
	return out
}

// A line that verifies and still is no line of a trace is refused by what is wrong with it.
func TestUnreadableLines(t *testing.T) {
	head := `{"n":0,"note":"header","data":{"format":2}`
	if _, _, _, err := read(seal(head, `{"n":1,"t":-5,"e":"tick"`)); err != nil {
		t.Fatalf("a good line: %v", err)
	}
	for line, want := range map[string]string{
		`{"n":2,"t":5,"e":"tick"`:                    "event 2 follows event 0",
		`{"t":5,"e":"tick"`:                          "sequence number",
		`{"n":1,"t":5`:                               "neither an event",
		`{"n":1,"t":5,"e":"tock"`:                    "tock",
		`{"n":1,"a":"start"`:                         "start-rollout",
		`{"n":1,"e":"tick","reason":"none"`:          "none",
		`{"n":1,"a":"group-ended","end":"lost"`:      "lost",
		`{"n":1,"e":"tick","slot":2147483648`:        "32 bits",
		`{"n":1,"e":"tick","t":9223372036854775808`:  "64 bits",
		`{"n":1,"e":"tick","t":99999999999999999999`: "64 bits",
		`{"n":1,"e":"tick","t":-`:                    "whole number",
		`{"n":1,"e":"tick","t":1.5`:                  "comma",
		`{"n":1,"e":"tick","colour":3`:               "colour",
		`{"n":1,"e":"tick","reward":x`:               "number",
		`{"n":1,"e":"tick","resumed":false`:          "true",
		`{"n":1,"e":"tick","verdict":"maybe"`:        "unknown verdict",
		`{"n":1,"e":"ti\\ck"`:                        "word",
		`{"n":1,"e":tick`:                            "quoted",
		`{"n":1,"e"="tick"`:                          "colon",
		`{"n":1,"note":"x","data":{`:                 "no JSON",
		`["n":1]`:                                    "begin",
	} {
		_, _, _, err := read(seal(head, line))
		var at *trace.Error
		if !errors.As(err, &at) || at.Line != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want line 2 and %q", line, err, want)
		}
	}
	for _, edge := range []string{"-9223372036854775808", "9223372036854775807"} {
		_, got, _, err := read(seal(head, `{"n":1,"e":"tick","t":`+edge))
		if err != nil || fmt.Sprint(got[0].Event.Time) != edge {
			t.Errorf("%s: %v", edge, err)
		}
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	if _, err := trace.Open(filepath.Join(dir, "nothing")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing path: %v", err)
	}
	if _, err := trace.Open(dir); err == nil || !strings.Contains(err.Error(), "not a run directory") {
		t.Errorf("an empty directory: %v", err)
	}
	path := filepath.Join(dir, trace.FileName)
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, path} {
		f, err := trace.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// The encoder is on the simulator's and the live run's path.
func TestEncodingDoesNotAllocate(t *testing.T) {
	var enc trace.Encoder
	buf := make([]byte, 0, 4096)
	ev := trace.Event{Event: loop.Event{Time: 1e9, Kind: loop.RolloutScored, Group: 7, Slot: 3, Attempt: 1, Tokens: 900, Reward: 0.25}, GenerateNS: 5}
	action := loop.Action{Kind: loop.GroupTrained, Group: 7, Lease: 2, Version: 4, StartVersion: 2, ReadyVersion: 3}
	if n := testing.AllocsPerRun(100, func() {
		buf = enc.AppendEvent(buf[:0], ev)
		buf = enc.AppendAction(buf, enc.Seq(), action)
	}); n != 0 {
		t.Errorf("%v allocations a line, want none", n)
	}
}

// FuzzReader checks that no input makes the reader panic, and that what it
// accepts is what an encoder would have written.
func FuzzReader(f *testing.F) {
	data, _ := write(f, 5, 6)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte("{\"n\":0,\"note\":\"header\"}\n"))
	_, packed, _, _ := packedLog(f, 15)
	f.Add(packed)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := trace.NewReader(bytes.NewReader(data))
		for err == nil {
			_, err = r.Next()
		}
		var at *trace.Error
		if !errors.Is(err, io.EOF) && !errors.As(err, &at) {
			t.Errorf("an error without a place: %v", err)
		}
		if at != nil && (at.Line < 1 || at.Offset < 0 || at.Offset > int64(len(data)) && !at.Packed) {
			t.Errorf("a place outside the input: %v", at)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	var enc trace.Encoder
	buf := make([]byte, 0, 4096)
	ev := trace.Event{Event: loop.Event{Time: 1e9, Kind: loop.RolloutScored, Group: 7, Slot: 3, Attempt: 1, Tokens: 900, Reward: 0.25}, GenerateNS: 5}
	for b.Loop() {
		buf = enc.AppendEvent(buf[:0], ev)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkRead(b *testing.B) {
	data, _ := write(b, 2000, 7)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, _, _, err := read(data); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzLine checks lines whose checksum is right: none panics, and what is accepted
// comes back the same from an encoder.
func FuzzLine(f *testing.F) {
	data, _ := write(f, 5, 8)
	for line := range bytes.Lines(data) {
		f.Add(string(line[:bytes.LastIndex(line, []byte(`,"crc":"`))]))
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		head := `{"n":0,"note":"header","data":{"format":2}`
		_, got, _, err := read(seal(head, line))
		if err != nil || len(got) != 1 {
			return
		}
		enc := &trace.Encoder{}
		again, err := enc.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format})
		if err != nil {
			t.Fatal(err)
		}
		switch rec := got[0]; {
		case rec.Event != nil:
			again = enc.AppendEvent(again, *rec.Event)
		case rec.Action != nil:
			again = enc.AppendAction(again, rec.Seq, *rec.Action)
		default:
			return
		}
		_, back, _, err := read(again)
		if err != nil {
			t.Fatalf("%s is read, and written so that it is not: %v", line, err)
		}
		same := got[0].Action != nil && *got[0].Action == *back[0].Action
		if got[0].Event != nil { // a reward may be no number, which equals nothing
			same = fmt.Sprintf("%#v", *got[0].Event) == fmt.Sprintf("%#v", *back[0].Event)
		}
		if !same {
			t.Errorf("%s comes back as %+v", line, back[0])
		}
	})
}

func ExampleDifference() {
	d := trace.Difference{Line: 12, Event: 5, Cause: "40ms tick", Expected: "group-queued g3 pqs=0"}
	fmt.Println(&d)
	// Output: line 12, event 5 (40ms tick): the loop decides group-queued g3 pqs=0, the trace has nothing
}
