package dashboard

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// machine brings a production loop's events, made up in turn, to whoever observes: every slot's rollout ends in its turn, and
// a train step after so many of them.
type machine struct {
	loop    *loop.Loop
	rules   loop.Config
	now     int64
	slots   []loop.Action // what runs
	pending []loop.Event
	// rollouts counts those that were started, slotNS their time in slots by then; trained the groups.
	events, rollouts, groups int64
	observe                  func(*loop.Event, *metrics.Measured, []loop.Action)
}

func rules() loop.Config {
	return loop.Config{GroupSize: 4, BatchGroups: 4, EngineSlots: []int{8, 8}, QueueGroups: 8}.WithDefaults()
}

func newMachine(t testing.TB, observe func(*loop.Event, *metrics.Measured, []loop.Action)) *machine {
	t.Helper()
	return machineOf(t, rules(), observe)
}

func machineOf(t testing.TB, rules loop.Config, observe func(*loop.Event, *metrics.Measured, []loop.Action)) *machine {
	t.Helper()
	l, err := loop.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{loop: l, rules: rules, slots: make([]loop.Action, 16), observe: observe}
	m.step(loop.Event{Kind: loop.RunStarted})
	return m
}

func (m *machine) step(ev loop.Event) {
	ev.Time = m.now
	actions, _ := m.loop.Step(ev)
	m.events++
	m.observe(&ev, &metrics.Measured{QueueGroups: m.loop.QueueGroups(), EnvironmentNS: 1e5}, actions)
	for _, a := range actions {
		switch a.Kind {
		case loop.StartRollout:
			m.slots[a.Slot] = a
			m.rollouts++
		case loop.StartTrainStep:
			m.pending = append(m.pending, loop.Event{Kind: loop.TrainStepEnded, Lease: a.Lease, Attempt: a.Attempt, Version: a.Version + 1})
		case loop.LoadWeights:
			m.pending = append(m.pending, loop.Event{Kind: loop.WeightsLoaded, Engine: a.Engine, Attempt: a.Attempt, Version: a.Version})
		case loop.SwitchWeights:
			m.pending = append(m.pending, loop.Event{Kind: loop.WeightsSwitched, Engine: a.Engine, Attempt: a.Attempt, Version: a.Version})
		case loop.GroupTrained:
			m.groups++
		}
	}
}

// turn ends the rollout of every slot, a millisecond apart, and then what else is under way.
func (m *machine) turn() {
	for slot := range m.slots {
		if a := m.slots[slot]; a.Group != 0 {
			m.now += 1e6
			m.step(loop.Event{Kind: loop.RolloutScored, Slot: int32(slot), Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Tokens: 10, Reward: float32(slot%2) / 2})
		}
	}
	due := m.pending
	m.pending = nil
	for _, ev := range due {
		m.now += 1e6
		m.step(ev)
	}
}

func newTestModel(spans int) *Model {
	return New(Options{Rules: rules(), SpansMax: spans, Info: Info{Name: "test", Kind: "run", Engines: []string{"a", "b"}}})
}

// get asks a handler for a path and decodes the answer.
func get(t *testing.T, h http.Handler, path string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v in %.200s", path, err, w.Body)
		}
	}
	return w.Code
}

// tile is a decoded tile.
type tile struct {
	start, end                 []float32
	track, version, count, ref []int32
	kind                       []byte
	flows                      int
}

func decodeTile(t *testing.T, b []byte) tile {
	t.Helper()
	if string(b[:4]) != "HWT1" {
		t.Fatalf("a tile begins with %q", b[:4])
	}
	n, f := int(binary.LittleEndian.Uint32(b[4:])), int(binary.LittleEndian.Uint32(b[8:]))
	if want := 12 + 24*n + (n+3)/4*4 + 24*f; len(b) != want {
		t.Fatalf("%d bytes of %d spans and %d flows, want %d", len(b), n, f, want)
	}
	at := 12
	word := func() uint32 { at += 4; return binary.LittleEndian.Uint32(b[at-4:]) }
	floats := func() (out []float32) {
		for range n {
			out = append(out, math.Float32frombits(word()))
		}
		return out
	}
	whole := func() (out []int32) {
		for range n {
			out = append(out, int32(word()))
		}
		return out
	}
	d := tile{start: floats(), end: floats(), track: whole(), version: whole(), count: whole(), ref: whole(), flows: f}
	d.kind = b[at : at+n]
	return d
}

func getTile(t *testing.T, h http.Handler, query string) (tile, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/view/tile?"+query, nil))
	if w.Code != 200 {
		t.Fatalf("tile?%s: %d %s", query, w.Code, w.Body)
	}
	return decodeTile(t, w.Body.Bytes()), w.Header()
}

// What the pages ask for is what the loop did: figures, queue, groups, series and spans.
func TestDataOfARun(t *testing.T) {
	m := newTestModel(0)
	run := newMachine(t, m.Observe)
	for range 60 {
		run.turn()
	}
	m.SetStatus(run.loop.Status())
	m.End("")
	h := m.Handler()
	var s Summary
	if code := get(t, h, "/api/v1/view/summary", &s); code != 200 || s.Version != run.loop.Version() || !s.Ended || !s.Balanced || s.Ledger != run.loop.Ledger() {
		t.Errorf("%d: %+v", code, s)
	}
	if s.Queue.Groups != run.loop.QueueGroups() || s.Attribution == nil || math.Abs(s.Attribution.StalenessMean-s.Staleness.Mean) > 1e-9 || s.Health.Sentence == "" {
		t.Errorf("queue %+v, attribution %+v, staleness %+v", s.Queue, s.Attribution, s.Staleness)
	}
	var q Queue
	get(t, h, "/api/v1/view/queue", &q)
	if len(q.Ready) != run.loop.QueueGroups() || !slices.IsSortedFunc(q.Ready, func(a, b QueueGroup) int { return int(1e9 * (b.WaitS - a.WaitS)) }) {
		t.Errorf("ready: %+v", q.Ready)
	}
	var series Series
	get(t, h, "/api/v1/view/series?points=10", &series)
	if n := len(series.Step); n != 10 || series.Step[n-1] != int64(s.Version) || len(series.Columns["staleness"]) != n || series.Columns["from_queue"] == nil {
		t.Errorf("series: %+v", series.Step)
	}
	var g Groups
	get(t, h, "/api/v1/view/groups?sort=-staleness&limit=5", &g)
	if len(g.Groups) != 5 || g.Next == 0 || g.Groups[0].Staleness < g.Groups[4].Staleness || g.Groups[0].End == "" {
		t.Errorf("groups: %+v", g)
	}
	var d GroupDetail
	if code := get(t, h, fmt.Sprint("/api/v1/view/groups/", g.Groups[0].ID), &d); code != 200 || d.ID != g.Groups[0].ID || d.End == "trained" && (d.Split == nil || math.Abs(d.Split.Sum()-float64(d.Staleness)) > 1e-6) {
		t.Errorf("group: %+v", d)
	}
}

// Every span of a slot is there where a tile shows it finely; merged, their counts add up, and where they are too many for a
// tile they are merged further. What ended does not change.
func TestTilesAreTheSpans(t *testing.T) {
	m := newTestModel(0)
	run := newMachine(t, m.Observe)
	for range 50 {
		run.turn()
	}
	m.End("")
	h := m.Handler()
	var tracks Tracks
	get(t, h, "/api/v1/view/tracks", &tracks)
	slots := 0
	for _, track := range tracks.Tracks {
		if track.Kind == "slot" {
			slots++
		}
	}
	if slots != 16 || tracks.EndNS != run.now || tracks.FinalNS <= run.now {
		t.Fatalf("%+v", tracks)
	}
	for _, level := range []int{6, 12, 20} {
		count, ids := int64(0), map[int32]bool{}
		for index := int64(0); index*tilePixels*(1000<<level) < run.now; index++ {
			d, header := getTile(t, h, fmt.Sprintf("level=%d&index=%d&version=%d", level, index, tracks.Version))
			if !strings.Contains(header.Get("Cache-Control"), "immutable") {
				t.Fatalf("a tile of a run that has ended: %v", header)
			}
			for i := range d.start {
				if d.start[i] >= d.end[i] {
					t.Fatalf("a span from %g to %g", d.start[i], d.end[i])
				}
				// One that reaches over the tile's beginning was counted in the one before.
				if tracks.Tracks[d.track[i]].Kind == "slot" && d.kind[i] == byte(SpanGenerate) && d.start[i] >= 0 {
					count += int64(d.count[i])
				}
				ids[d.ref[i]] = true
			}
		}
		// With its environment's stretch, a rollout is two spans; merged ones count both.
		if level == 6 && count != run.rollouts {
			t.Errorf("level %d: %d rollouts drawn of %d", level, count, run.rollouts)
		}
		if len(ids) == 0 {
			t.Errorf("level %d is empty", level)
		}
	}
	few, _ := getTile(t, h, "level=14&index=0&from_track=1&to_track=2")
	for _, track := range few.track {
		if track != 1 {
			t.Fatalf("track %d was not asked for", track)
		}
	}
	for _, bad := range []string{"level=99&index=0", "level=3&index=-1", "level=x", ""} {
		if code := get(t, h, "/api/v1/view/tile?"+bad, nil); code != 400 {
			t.Errorf("tile?%s: %d, want 400", bad, code)
		}
	}
}

// An index of a time that no number says is refused, not answered with another's tile.
func TestTilesOfTimesThatAreNone(t *testing.T) {
	data := newTestModel(1000).Data()
	for level := int64(levelMin); level <= levelMax; level++ {
		last := indexMax(level)
		if w := windowOf(int(level), last, 0, 1); w.from < 0 || w.to <= w.from || w.to-w.from != tilePixels*w.pixel {
			t.Errorf("level %d: the last tile is from %d to %d", level, w.from, w.to)
		}
		for _, index := range []int64{last, last + 1, 1 << 51, 1<<52>>level + 1, math.MaxInt64} {
			want := 200
			if index > last {
				want = 400
			}
			if code := get(t, data, fmt.Sprintf("/api/v1/view/tile?level=%d&index=%d", level, index), nil); code != want {
				t.Errorf("level %d, index %d: %d, want %d", level, index, code, want)
			}
		}
	}
}

// However long a run is, its spans are bounded: the newest are kept, and the older ones thinned without losing count.
func TestSpansAreBounded(t *testing.T) {
	const limit = 2000
	m := newTestModel(limit)
	run := newMachine(t, m.Observe)
	for range 2000 {
		run.turn()
		if m.draw.rows.total > limit {
			t.Fatalf("%d spans, want at most %d", m.draw.rows.total, limit)
		}
	}
	if m.draw.rows.generation == 0 {
		t.Fatal("nothing was thinned")
	}
	counted, held := int64(0), 0
	for track, spans := range m.draw.rows.spans {
		held += len(spans)
		for i, s := range spans {
			if i > 0 && s.from < spans[i-1].to {
				t.Fatalf("track %d: spans overlap", track)
			}
			if m.draw.tracks[track].Kind == "slot" {
				counted += int64(s.count)
			}
		}
	}
	if held != m.draw.rows.total || counted < run.rollouts || len(m.series.steps) > pointsMax {
		t.Errorf("%d spans held, %d said; %d counted of %d rollouts", held, m.draw.rows.total, counted, run.rollouts)
	}
}

// Memory is flat while events come for an hour at 1,000 a second: between a fifth of it and the end the heap does not
// grow. By default a fifth of the hour is tried.
func TestMemoryOfAnHour(t *testing.T) {
	m := New(Options{Rules: rules(), SpansMax: 1 << 14, GroupsMax: 1 << 12})
	run := newMachine(t, m.Observe)
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	events := int64(3600 * 1000 / 5)
	if os.Getenv("HEADWAY_LONG") != "" {
		events *= 5
	}
	for run.events < events/5 {
		run.turn()
	}
	before := heap()
	for run.events < events {
		run.turn()
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	runtime.KeepAlive(m)
}

// A run's goroutine is never held up by a feed: what is not taken is counted, and what is taken is in order.
func TestFeedNeverWaits(t *testing.T) {
	m := newTestModel(0)
	f := NewFeed(m)
	run := newMachine(t, f.Observe)
	for run.events < 2*feedEvents {
		run.turn() // nobody takes anything
	}
	f.Take()
	if m.missed == 0 || m.missed+feedEvents != run.events {
		t.Errorf("%d of %d events were missed, want all beyond %d", m.missed, run.events, feedEvents)
	}
	m, run = newTestModel(0), nil
	f = NewFeed(m)
	run = newMachine(t, f.Observe)
	for range 40 {
		run.turn()
		f.Take()
	}
	if m.missed != 0 || m.rec.Version() != run.loop.Version() {
		t.Errorf("%d missed, version %d, want %d", m.missed, m.rec.Version(), run.loop.Version())
	}
}

// A thousand readers of the stream that take nothing hold nobody up: the run goes on, others are answered, and each of them
// is sent the newest state once it reads.
func TestStalledReaders(t *testing.T) {
	m := newTestModel(0)
	f := NewFeed(m)
	ctx, stop := context.WithCancel(t.Context())
	var fed sync.WaitGroup
	fed.Go(func() { f.Run(ctx) })
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	run := newMachine(t, f.Observe)
	const readers = 1000
	var bodies []io.ReadCloser
	reading, leave := context.WithCancel(t.Context())
	defer leave()
	for range readers {
		ask, err := http.NewRequestWithContext(reading, "GET", server.URL+"/api/v1/view/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := server.Client().Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, r.Body)
	}
	for run.events < 50_000 {
		run.turn()
	}
	stop()
	fed.Wait() // all that the run said has been taken, whoever reads or not
	if m.missed != 0 || m.rec.Version() != run.loop.Version() {
		t.Errorf("%d events missed, version %d of %d", m.missed, m.rec.Version(), run.loop.Version())
	}
	for _, body := range []io.Reader{bodies[0], bodies[readers-1]} {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for ended := false; !ended && lines.Scan(); {
			ended = strings.Contains(lines.Text(), `"ended":true`)
		}
		if lines.Err() != nil {
			t.Error(lines.Err())
		}
	}
	leave()
	for _, body := range bodies {
		body.Close()
	}
}

// What is no number never breaks an answer, and markup in a prompt is data.
func TestNumbersAndMarkup(t *testing.T) {
	nan := math.NaN()
	body, err := encodeJSON(map[string]any{"a": nan, "b": &nan, "c": []float64{1, math.Inf(1)}, "d": Summary{PQS: nan}})
	if err != nil || !json.Valid(body) || !strings.Contains(string(body), `"b":null`) {
		t.Errorf("%s, %v", body, err)
	}
	m := newTestModel(0)
	const prompt = `<script>alert(1)</script>`
	m.Keep(Readable{ID: 7, Step: 1, Prompt: prompt, Bytes: 10, Text: true, Rollouts: func() []RolloutDetail {
		return []RolloutDetail{{Reward: math.Inf(1), Turns: []Turn{{Role: "policy", Text: prompt, Logprobs: []float32{float32(nan)}}}}}
	}})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/view/groups/7", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" || strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	var d GroupDetail
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || d.PromptText != prompt {
		t.Errorf("%+v, %v", d, err)
	}
}

// The rollouts that are kept are bounded by bytes: the newest.
func TestReadingsAreBounded(t *testing.T) {
	m := New(Options{Rules: rules(), PayloadBytesMax: 1000})
	for id := loop.GroupID(1); id <= 50; id++ {
		m.Keep(Readable{ID: id, Bytes: 100})
	}
	g := m.Groups(Query{Readable: true})
	if len(g.Groups) != 10 || g.Groups[0].ID != 50 || g.Groups[9].ID != 41 {
		t.Errorf("%+v", g.Groups)
	}
}

// The pages are served with their type and their tag, packed for those that take it, and nothing may come from elsewhere.
func TestPages(t *testing.T) {
	h := newTestModel(0).Handler()
	ask := func(path, key, value string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set(key, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	w := ask("/", "Accept-Encoding", "gzip")
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if again := ask("/", "If-None-Match", w.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("asked again: %d", again.Code)
	}
	if js := ask("/app.js", "Accept-Encoding", "gzip"); js.Header().Get("Content-Encoding") != "gzip" || js.Header().Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("%v", js.Header())
	}
	if w := ask("/../model.go", "Accept", "*/*"); w.Code != 404 {
		t.Errorf("a file beside the pages: %d", w.Code)
	}
}

// BenchmarkObserve is what an event costs the goroutine that takes it, BenchmarkFeed what it costs the run's.
func BenchmarkObserve(b *testing.B) {
	benchmarkEvents(b, func() func(*loop.Event, *metrics.Measured, []loop.Action) { return newTestModel(0).Observe })
}

func BenchmarkFeed(b *testing.B) {
	f := NewFeed(newTestModel(0))
	benchmarkEvents(b, func() func(*loop.Event, *metrics.Measured, []loop.Action) {
		f.filling.clear()
		return f.Observe
	})
}

// benchmarkEvents brings recorded events in the order of a run, to somebody new each time they are over.
func benchmarkEvents(b *testing.B, observer func() func(*loop.Event, *metrics.Measured, []loop.Action)) {
	type observed struct {
		ev      loop.Event
		m       metrics.Measured
		actions []loop.Action
	}
	var log []observed
	run := newMachine(b, func(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
		log = append(log, observed{*ev, *m, slices.Clone(actions)})
	})
	for len(log) < feedEvents-100 {
		run.turn()
	}
	var observe func(*loop.Event, *metrics.Measured, []loop.Action)
	b.ResetTimer()
	for i := range b.N {
		if i%len(log) == 0 {
			b.StopTimer()
			observe = observer()
			b.StartTimer()
		}
		o := &log[i%len(log)]
		observe(&o.ev, &o.m, o.actions)
	}
}

// BenchmarkTile is a tile of the whole of 10⁶ spans, and one of a thousandth.
func BenchmarkTile(b *testing.B) {
	m := newTestModel(4 << 20)
	run := newMachine(b, m.Observe)
	for m.draw.rows.total < 1_000_000 {
		run.turn()
	}
	for name, share := range map[string]float64{"whole": 1, "thousandth": 1e-3} {
		level := int(math.Ceil(math.Log2(float64(run.now) * share / 1000 / tilePixels)))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m.tile(windowOf(level, 0, 0, 1<<30))
			}
		})
	}
}
