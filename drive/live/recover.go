package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// Resume is the state of a run between two lines of its log. Recover makes one of an
// interrupted run; State is what a snapshot keeps of it.
type Resume struct {
	// Loop as it was after the last event, Recorder, Attribution and Counted fed with all of them. Without
	// an Attribution what is trained of before is in none.
	Loop        *loop.Loop
	Recorder    *metrics.Recorder
	Attribution *attribution.Observer
	Counted     *Counted
	// cells has the newest event of each cell of another process.
	cells cellOrigins
	// lacks is what the append of the last events did not bring into the log, as its process ended: their actions, and the
	// note that the last event of all is a score that does not count.
	lacks lacking
	// Encoder goes on after the last line.
	Encoder *trace.Encoder
	// Ended: the last line is the end note, the process before finished in order.
	Ended bool
	// Restarts is how often the run has been recovered, this time included.
	Restarts int

	// SnapshotLine and SnapshotEvent place the snapshot that the run was recovered
	// from, in lines and in events before it. Both are 0 where the whole log was
	// replayed.
	SnapshotLine, SnapshotEvent int64
	// Events is how many were replayed after that, Seconds how long all of it took.
	Events  int64
	Seconds float64
	// PassedOver says of every snapshot that could not be used why; nil for none.
	PassedOver []string
}

// SeriesSteps is how many points of the series a run remembers at least. The
// report of a longer run draws its newest ones, and metrics.jsonl has them all.
// About 1 MB.
const SeriesSteps = 8192

// stateVersion changes when a snapshot's form or meaning does.
const stateVersion = 2

// state is a snapshot's document. It is JSON, because the loop's part is, which
// people look into after a defect; the recorder's is packed, because its sums have to
// come back bit for bit and its series is long.
type state struct {
	Position    trace.Position   `json:"position"`
	Ended       bool             `json:"ended"`
	Restarts    int              `json:"restarts"`
	Loop        json.RawMessage  `json:"loop"`
	Recorder    []byte           `json:"recorder"`
	Attribution json.RawMessage  `json:"attribution"`
	Ledger      loop.Ledger      `json:"ledger"`
	Counted     []port.RolloutID `json:"counted"`
	Cells       []trace.Origin   `json:"cells,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// State returns the run as bytes, for Store.Snapshot: its version and a checksum in a
// line, then a JSON document. The same state gives the same bytes.
func (r *Resume) State() ([]byte, error) {
	state, err := r.capture()
	if err != nil {
		return nil, err
	}
	return state()
}

// capture returns a function that says what State says now, once and from any goroutine.
func (r *Resume) capture() (func() ([]byte, error), error) {
	source, err := r.attribution().State()
	if err != nil {
		return nil, fmt.Errorf("live: where staleness comes from: %w", err)
	}
	s := state{Position: r.Encoder.Position(), Ended: r.Ended, Restarts: r.Restarts, Recorder: r.Recorder.State(), Attribution: source, Ledger: r.Counted.last,
		Cells: r.cells.list()}
	for _, group := range slices.Sorted(maps.Keys(r.Counted.groups)) {
		s.Counted = append(s.Counted, r.Counted.groups[group]...)
	}
	inner := r.Loop.Capture()
	return func() ([]byte, error) { return s.write(inner) }, nil
}

// write returns the document with the loop's part in it.
func (s *state) write(inner func() ([]byte, error)) (_ []byte, err error) {
	if s.Loop, err = inner(); err != nil {
		return nil, fmt.Errorf("live: the loop's state: %w", err)
	}
	document, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("live: the run's state: %w", err)
	}
	return append(stateHeader(stateVersion, document), document...), nil
}

func stateHeader(version int, document []byte) []byte {
	return fmt.Appendf(nil, "headway state %d %08x\n", version, crc32.Checksum(document, castagnoli))
}

// parseState returns the run that State was called on.
func parseState(data []byte, h trace.Header) (*Resume, error) {
	line, document, found := bytes.Cut(data, []byte{'\n'})
	version := 0
	if _, err := fmt.Sscanf(string(line), "headway state %d ", &version); err != nil || !found {
		return nil, errors.New("not a state of a run")
	}
	if version != stateVersion {
		return nil, fmt.Errorf("a state of version %d, this program reads %d", version, stateVersion)
	}
	if !bytes.Equal(data[:len(line)+1], stateHeader(version, document)) {
		return nil, errors.New("damaged: its checksum does not match")
	}
	var s state
	if err := json.Unmarshal(document, &s); err != nil {
		return nil, fmt.Errorf("unreadable: %w", err)
	}
	l, err := loop.Restore(s.Loop)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(l.Config(), h.Loop.WithDefaults()) {
		return nil, errors.New("a state under other rules than the log's")
	}
	rec, err := metrics.Restore(l.Config(), s.Recorder)
	if err != nil {
		return nil, err
	}
	source, err := attribution.Restore(l.Config(), s.Attribution)
	if err != nil {
		return nil, err
	}
	rec.Beside = source
	c := NewCounted(l.Config().Policy)
	c.last = s.Ledger
	for _, id := range s.Counted {
		c.groups[id.Group] = append(c.groups[id.Group], id)
	}
	cells := cellOrigins{}
	for _, o := range s.Cells {
		cells.logged(o)
	}
	return &Resume{Loop: l, Recorder: rec, Attribution: source, Counted: c, cells: cells, Encoder: trace.Resume(s.Position), Ended: s.Ended, Restarts: s.Restarts,
		SnapshotLine: s.Position.Line, SnapshotEvent: s.Position.Seq}, nil
}

// Counts reports whether an attempt's score is one of those that its group, which
// has not ended, is made of. A store keeps the payload of such an attempt over a
// restart.
func (c *Counted) Counts(id port.RolloutID) bool { return slices.Contains(c.groups[id.Group], id) }

// Recover rebuilds an interrupted run from its store. It takes the newest snapshot
// that can be used, and the log after it through the loop. The loop must decide
// the actions that the log has. A snapshot that is damaged, of another version of
// the program, or not of this log is passed over for the one before. Without any,
// the whole log is replayed. It changes nothing in the store. now returns
// nanoseconds, from any origin; nil leaves Seconds 0.
func Recover(store port.Store, now func() int64) (*Resume, error) {
	began := int64(0)
	if now != nil {
		began = now()
	}
	h, ok := store.Header()
	if !ok {
		return nil, errors.New("live: the log is empty: there is no run to recover")
	}
	r, passed, err := recoverNewest(store, h)
	if err != nil {
		return nil, err
	}
	r.PassedOver = passed
	r.Restarts++
	if now != nil {
		r.Seconds = float64(now()-began) / 1e9
	}
	return r, nil
}

// recoverNewest tries the snapshots from the newest on, then the whole log. It says
// why snapshots were passed over.
func recoverNewest(store port.Store, h trace.Header) (r *Resume, passed []string, err error) {
	for before := int64(math.MaxInt64); ; {
		line, data, err := store.ReadSnapshot(before)
		if err != nil && !errors.Is(err, port.ErrSnapshotDamaged) {
			return nil, nil, fmt.Errorf("live: reading a snapshot: %w", err)
		}
		if err == nil && data == nil {
			break
		}
		if err == nil {
			r, err = recoverFrom(store, h, line, data)
		}
		if err == nil {
			return r, passed, nil
		}
		passed = append(passed, fmt.Sprintf("the snapshot as of line %d: %v", line, err))
		before = line
	}
	if r, err = recoverWhole(store, h); err != nil {
		err = fmt.Errorf("live: the run cannot be recovered from its log: %w", err)
		for _, why := range passed {
			err = fmt.Errorf("%w; %s", err, why)
		}
		return nil, nil, err
	}
	return r, passed, nil
}

// recoverFrom restores a snapshot and replays the log after it.
func recoverFrom(store port.Store, h trace.Header, line int64, data []byte) (*Resume, error) {
	r, err := parseState(data, h)
	if err != nil {
		return nil, err
	}
	at := r.Encoder.Position()
	if at.Line != line {
		return nil, fmt.Errorf("it says that it is as of line %d", at.Line)
	}
	log, err := openAfter(store, at)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return r, r.replay(trace.NewReaderAt(log, at, h))
}

// openAfter opens the log after a position, and checks that the line before it is the
// one that the position is of, where the log still has that line.
func openAfter(store port.Store, at trace.Position) (io.ReadCloser, error) {
	last, err := store.ReadLog(at.Line - 1)
	if err == nil {
		err = errors.Join(checkLine(last, at), last.Close())
	}
	if err != nil && !errors.Is(err, port.ErrLogTrimmed) {
		return nil, err
	}
	return store.ReadLog(at.Line)
}

// checkLine reads one line, which is to end with a position's checksum.
func checkLine(src io.Reader, at trace.Position) error {
	const end = len(`00000000"}` + "\n")
	var tail []byte
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		part := buf[:n]
		i := bytes.IndexByte(part, '\n')
		if i >= 0 {
			part = part[:i+1]
		}
		if tail = append(tail, part...); len(tail) > end {
			tail = slices.Clone(tail[len(tail)-end:])
		}
		switch {
		case i >= 0 && string(tail) == fmt.Sprintf("%08x\"}\n", at.Sum):
			return nil
		case i >= 0 || errors.Is(err, io.EOF):
			return fmt.Errorf("it is not of this log: line %d ends with another checksum", at.Line)
		case err != nil:
			return err
		}
	}
}

// recoverWhole replays the whole log.
func recoverWhole(store port.Store, h trace.Header) (*Resume, error) {
	log, err := store.ReadLog(0)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	reader, err := trace.NewReader(log)
	if err != nil {
		return nil, err
	}
	l, err := loop.New(h.Loop)
	if err != nil {
		return nil, fmt.Errorf("the log's header holds no rules a loop can run by: %w", err)
	}
	r := &Resume{Loop: l, Recorder: newRecorder(l.Config(), h), Attribution: newAttribution(l.Config(), h), Counted: NewCounted(l.Config().Policy), cells: cellOrigins{}}
	r.Recorder.Beside = r.Attribution
	return r, r.replay(reader)
}

// newAttribution returns the observer of a run that begins with a header.
func newAttribution(cfg loop.Config, h trace.Header) *attribution.Observer {
	o := attribution.New(cfg)
	o.Warmup = h.Warmup
	return o
}

// attribution returns what the run is to be attributed by, a new one if there is none.
func (r *Resume) attribution() *attribution.Observer {
	if r.Attribution == nil {
		return attribution.New(r.Loop.Config())
	}
	return r.Attribution
}

// newRecorder returns the recorder of a run that begins with a header.
func newRecorder(cfg loop.Config, h trace.Header) *metrics.Recorder {
	rec := metrics.NewRecorder(cfg)
	rec.Warmup, rec.StepsMax = h.Warmup, SeriesSteps
	return rec
}

// replay takes the rest of the log through the loop.
func (r *Resume) replay(reader *trace.Reader) error {
	p := trace.NewPlayer(reader, r.Loop)
	if r.Ended {
		p.MarkEnded()
	}
	p.OnEvent = func(ev *trace.Event, _ int64, actions []loop.Action) {
		r.Recorder.Observe(ev.Event, metrics.Measured{QueueGroups: r.Loop.QueueGroups(), VersionTokens: ev.VersionTokens,
			EnvironmentNS: ev.EnvironmentNS, Spans: ev.Spans, Resumed: ev.Resumed, StateLag: ev.StateLag, Control: metrics.ControlOf(r.Loop, ev.Kind)}, actions)
		r.lacks.note = nil
		if counts := r.Counted.Observe(ev.Event, r.Loop.Ledger(), actions); discards(ev.Event, counts) {
			id := idOf(ev.Event)
			r.lacks.note = &id
		}
		r.cells.logged(ev.Origin)
	}
	p.OnNote = func(name string, _ []byte) error {
		if name == trace.NoteDiscarded {
			r.lacks.note = nil
		}
		return nil
	}
	if err := p.Play(); err != nil {
		return err
	}
	found := p.Tally()
	if d := found.Difference; d != nil {
		return fmt.Errorf("the log was recorded by %q under other rules, %v: go on with that version of headway", reader.Header.Program, d)
	}
	r.Encoder, r.Ended, r.Events = reader.Encoder(), found.Ended, found.Events
	r.Restarts += int(found.Recoveries)
	for seq, a := range p.Pending() {
		r.lacks.actions = append(r.lacks.actions, a)
		r.lacks.events = append(r.lacks.events, seq)
	}
	return nil
}

// lacking is what a log lacks at its end. The actions follow from events, each at the same index.
type lacking struct {
	note    *port.RolloutID
	actions []loop.Action
	events  []int64
}

// complete renders what the log lacks, before anything else: cells of other processes go on with it.
func (r *Runtime) complete(lacks *lacking) {
	if lacks.note != nil {
		r.note(trace.NoteDiscarded, *lacks.note)
	}
	for i, a := range lacks.actions {
		r.lines = r.enc.AppendAction(r.lines, lacks.events[i], a)
	}
}
