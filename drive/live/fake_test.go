package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// work gives every rollout attempt its time; both the fakes and the simulator read it.
type work struct {
	stepNS int64
	equal  bool // all samples of a group take equally long
	tools  bool // half of the time is spent in tools
	slow   bool // every fifth train step takes four times as long
}

// Rollout draws odd, distinct times, so that no two events share an instant.
func (w work) Rollout(r sim.Rollout) sim.Response {
	if w.equal {
		r.Sample = 0
	}
	x := uint64(r.Group)*0x9E3779B97F4A7C15 + uint64(r.Sample)*0xBF58476D1CE4E5B9 + uint64(r.Attempt)*0x94D049BB133111EB
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 32
	out := sim.Response{Tokens: int32(20_000_003 + x%90_000_000)}
	if w.tools {
		out.EnvironmentNS = int64(out.Tokens / 2)
		out.Tokens -= out.Tokens / 2
	}
	return out
}

func (w work) StepNS(lease loop.LeaseID, _, _ int64) int64 {
	ns := w.stepNS + int64(lease)*7
	if w.slow && lease%5 == 0 {
		ns *= 4
	}
	return ns
}

// fakeEngine "generates" by waiting a nanosecond a token. Faults are injected through fail.
type fakeEngine struct {
	name  string
	slots int
	work  work
	fail  func(port.RolloutID) error
	mu    sync.Mutex
	// progress is shared by all engines.
	progress *progress
	loaded   loop.Version
	served   loop.Version
	active   int
	most     int
	loadNS   int64
	awaits   bool // it never loads
	// busySwitches counts the generations that ran through a switch.
	busySwitches int
	broken       func(loop.Version) error
}

func (e *fakeEngine) Name() string { return e.name }
func (e *fakeEngine) Slots() int   { return e.slots }
func (e *fakeEngine) Close() error { return nil }

// progress is the time that interrupted rollouts have spent generating, and what generates now.
type progress struct {
	mu      sync.Mutex
	done    map[port.RolloutID]time.Duration
	running []port.RolloutID
}

func (p *progress) of(id port.RolloutID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done[id]
}

func (p *progress) add(id port.RolloutID, d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(map[port.RolloutID]time.Duration)
	}
	p.done[id] += d
	return p.done[id]
}

func (e *fakeEngine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	e.mu.Lock()
	first := e.served
	e.active++
	e.most = max(e.most, e.active)
	e.mu.Unlock()
	e.progress.enter(req.Rollout)
	defer e.leave(req.Rollout)
	if req.FirstToken != nil {
		req.FirstToken(first)
	}
	began := time.Now()
	id := req.Rollout
	tokens := e.work.Rollout(sim.Rollout{Group: id.Group, Sample: id.Sample, Attempt: id.Attempt}).Tokens
	out := port.Generation{Tokens: slices.Clone(req.Prefix.Tokens), Logprobs: slices.Clone(req.Prefix.Logprobs), Versions: slices.Clone(req.Prefix.Versions)}
	select {
	case <-time.After(time.Duration(tokens) - e.progress.of(req.Rollout)):
	case <-req.Interrupt:
		spent := e.progress.add(req.Rollout, time.Since(began))
		e.progress.inTurn(req.Rollout)
		if spent > 0 {
			out = appendToken(out, first)
		}
		out.Interrupted = true
		return out, nil
	case <-ctx.Done():
		e.progress.inTurn(req.Rollout)
		return port.Generation{}, ctx.Err()
	}
	if e.fail != nil {
		if err := e.fail(req.Rollout); err != nil {
			return port.Generation{}, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return appendToken(appendToken(out, first), e.served), nil
}

func appendToken(g port.Generation, v loop.Version) port.Generation {
	g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, 1), append(g.Logprobs, -1), append(g.Versions, v)
	return g
}

// inTurn waits so many nanoseconds that what stops at one instant answers in the
// order of its names, as in the simulator: the runtime would take any order.
func (p *progress) inTurn(id port.RolloutID) {
	p.mu.Lock()
	rank := 1
	for _, o := range p.running {
		if o.Group < id.Group || o.Group == id.Group && o.Sample < id.Sample {
			rank++
		}
	}
	p.mu.Unlock()
	time.Sleep(time.Duration(rank))
}

func (p *progress) enter(id port.RolloutID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, id)
}

func (p *progress) leave(id port.RolloutID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = slices.DeleteFunc(p.running, func(o port.RolloutID) bool { return o == id })
}

func (e *fakeEngine) leave(id port.RolloutID) {
	e.progress.leave(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
}

func (e *fakeEngine) Load(ctx context.Context, v loop.Version) error {
	if e.loadNS > 0 {
		time.Sleep(time.Duration(e.loadNS))
	}
	if e.broken != nil {
		if err := e.broken(v); err != nil {
			return err
		}
	}
	if e.awaits { // until somebody brings the weights, who does not come
		<-ctx.Done()
		return ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loaded = v
	return nil
}

func (e *fakeEngine) Switch(ctx context.Context, v loop.Version, hold bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaded != v {
		return fmt.Errorf("asked for version %d, %d is loaded", v, e.loaded)
	}
	e.busySwitches += e.active
	e.served = v
	return nil
}

// fakeEnvironment scores with a constant, after a time in tools.
type fakeEnvironment struct {
	reward func(port.RolloutID) float32
	toolNS func(port.RolloutID) int64
	pruned func(port.RolloutID) bool
	err    error
	errOf  func(port.RolloutID) error // after the response, as err
	plays  *plays
}

// plays counts rollouts that are being played, interrupted ones included.
type plays struct {
	mu        sync.Mutex
	now, most int
}

func (p *plays) add(n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now += n
	p.most = max(p.most, p.now)
}

func (e fakeEnvironment) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	e.plays.add(1)
	defer e.plays.add(-1)
	id := t.ID
	g, err := s.Sample(ctx, port.SampleRequest{Prompt: []int32{7}, MaxTokens: 2, Final: e.toolNS == nil})
	if err != nil {
		return port.Sample{}, err
	}
	if e.err != nil {
		return port.Sample{}, e.err
	}
	if e.errOf != nil && e.errOf(id) != nil {
		return port.Sample{}, e.errOf(id)
	}
	if e.pruned != nil && e.pruned(id) {
		return port.Sample{ID: id, Pruned: true}, nil
	}
	if e.toolNS != nil {
		select {
		case <-time.After(time.Duration(e.toolNS(id))):
		case <-ctx.Done():
			return port.Sample{}, ctx.Err()
		}
	}
	out := port.Sample{ID: id, Tokens: append([]int32{7}, g.Tokens...), LossMask: append([]uint8{0}, bytes.Repeat([]byte{1}, len(g.Tokens))...),
		Logprobs: append([]float32{0}, g.Logprobs...), Versions: append([]loop.Version{loop.NoVersion}, g.Versions...), Reward: 1}
	if e.reward != nil {
		out.Reward = e.reward(id)
	}
	return out, nil
}

// fakeTrainer waits for the step's time and publishes.
type fakeTrainer struct {
	work    work
	weights *fakeWeights
	fail    func(port.Batch) error
	drifts  bool
	at      loop.Version
	batches []port.Batch
	// restored: the batch that is trained first was said to Restore, as outstanding or as none.
	restored    bool
	outstanding loop.LeaseID
	// ask, if not nil, asks for the next batch; the first is true.
	ask func(first bool)
}

// asks has the trainer ask for its batches, a time after each step's end, and first
// that long after the engines have loaded version 0.
func (t *fakeTrainer) asks(r *live.Runtime, loadNS, askNS int64) {
	t.ask = func(first bool) {
		d := askNS
		if first {
			d += loadNS
		}
		time.AfterFunc(time.Duration(d), r.TrainerReady)
	}
}

func (t *fakeTrainer) nextBatch(first bool) {
	if t.ask != nil {
		t.ask(first)
	}
}

func (t *fakeTrainer) Initialize(ctx context.Context) error {
	t.nextBatch(true)
	return t.weights.Publish(ctx, port.Publication{})
}

func (t *fakeTrainer) Restore(ctx context.Context, v loop.Version, outstanding loop.LeaseID) error {
	if _, ok, _ := t.weights.Committed(v); !ok {
		return fmt.Errorf("version %d is not there", v)
	}
	t.at, t.restored, t.outstanding = v, true, outstanding
	return nil
}

// offered holds the port to its word: after a restart the first batch is of the lease that Restore was told of.
func (t *fakeTrainer) offered(b port.Batch) error {
	if told := t.outstanding; t.restored && (told != 0) != (b.Attempt > 1) || told != 0 && told != b.Lease {
		return fmt.Errorf("lease %d, attempt %d after Restore was told that lease %d is outstanding", b.Lease, b.Attempt, told)
	}
	t.restored, t.outstanding = false, 0
	return nil
}

func (t *fakeTrainer) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	if b.Version != t.at {
		return port.StepReport{}, fmt.Errorf("batch from version %d, trainer at %d", b.Version, t.at)
	}
	if err := t.offered(b); err != nil {
		return port.StepReport{}, err
	}
	select {
	case <-time.After(time.Duration(t.work.StepNS(b.Lease, 0, 0))):
	case <-ctx.Done():
		return port.StepReport{}, ctx.Err()
	}
	if t.fail != nil {
		if err := t.fail(b); err != nil {
			return port.StepReport{}, err
		}
	}
	t.nextBatch(false)
	t.at++
	t.batches = append(t.batches, b)
	report := port.StepReport{Tokens: 6}
	for _, g := range b.Groups {
		if t.drifts {
			report.Drifts = append(report.Drifts, port.GroupDrift{Group: g.ID, Drift: float64(b.Version-g.StartVersion) / 100})
		}
	}
	return report, t.weights.Publish(ctx, port.Publication{Version: t.at, Lease: b.Lease})
}

func (t *fakeTrainer) Close() error { return nil }

type fakeWeights struct {
	mu     sync.Mutex
	leases map[loop.Version]loop.LeaseID
	pruned loop.Version
}

func (w *fakeWeights) Publish(_ context.Context, p port.Publication) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.leases[p.Version]; ok && old != p.Lease {
		return errors.New("published twice, by different batches")
	}
	if w.leases == nil {
		w.leases = make(map[loop.Version]loop.LeaseID)
	}
	w.leases[p.Version] = p.Lease
	return nil
}

func (w *fakeWeights) Model(context.Context, loop.Version) ([]port.Tensor, error) { return nil, nil }

func (w *fakeWeights) Optimizer(context.Context, loop.Version) ([]port.Tensor, error) {
	return nil, nil
}

func (w *fakeWeights) Committed(v loop.Version) (loop.LeaseID, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lease, ok := w.leases[v]
	return lease, ok, nil
}

func (w *fakeWeights) Prune(keepFrom loop.Version) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pruned = keepFrom
	return nil
}

// memoryStore keeps the log and the payloads in memory; what was appended survives a "crash".
type memoryStore struct {
	mu      sync.Mutex
	log     bytes.Buffer
	samples map[loop.GroupID]map[int32]port.Sample
	// snapshots are by line.
	snapshots map[int64][]byte
	// failAppend, if above 0, makes Append fail from that call on.
	failAppend, appends int
	// slow is how long a payload takes to be durable.
	slow func(port.RolloutID) time.Duration
	// tells is how long after that PutSample returns.
	tells func(port.RolloutID) time.Duration
}

func (s *memoryStore) Append(lines [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends++
	if s.failAppend > 0 && s.appends >= s.failAppend {
		return errors.New("input/output error")
	}
	for _, l := range lines {
		s.log.Write(l)
	}
	return nil
}

func (s *memoryStore) PutSample(p port.Sample) error {
	if s.slow != nil {
		time.Sleep(s.slow(p.ID))
	}
	s.put(p)
	if s.tells != nil {
		time.Sleep(s.tells(p.ID))
	}
	return nil
}

func (s *memoryStore) put(p port.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.samples == nil {
		s.samples = make(map[loop.GroupID]map[int32]port.Sample)
	}
	if s.samples[p.ID.Group] == nil {
		s.samples[p.ID.Group] = make(map[int32]port.Sample)
	}
	if old, ok := s.samples[p.ID.Group][p.ID.Sample]; !ok || old.ID.Attempt <= p.ID.Attempt {
		s.samples[p.ID.Group][p.ID.Sample] = p
	}
}

func (s *memoryStore) Samples(g loop.GroupID) ([]port.Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []port.Sample
	for _, p := range s.samples[g] {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b port.Sample) int { return int(a.ID.Sample - b.ID.Sample) })
	return out, nil
}

func (s *memoryStore) Discard(id port.RolloutID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.samples[id.Group][id.Sample]; ok && p.ID == id {
		delete(s.samples[id.Group], id.Sample)
	}
	return nil
}

func (s *memoryStore) Forget(g loop.GroupID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.samples, g)
	return nil
}

func (s *memoryStore) Retain(counts func(port.RolloutID) bool) (dropped int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, samples := range s.samples {
		for k, p := range samples {
			if !counts(p.ID) {
				delete(samples, k)
				dropped++
			}
		}
	}
	return dropped, nil
}

func (s *memoryStore) Header() (trace.Header, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log.Len() == 0 {
		return trace.Header{}, false
	}
	r, err := trace.NewReader(bytes.NewReader(s.log.Bytes()))
	if err != nil {
		panic(err)
	}
	return r.Header, true
}

func (s *memoryStore) Snapshot(line int64, state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := int64(bytes.Count(s.log.Bytes(), []byte("\n"))); line > n {
		return fmt.Errorf("a snapshot as of line %d of %d", line, n)
	}
	if s.snapshots == nil {
		s.snapshots = make(map[int64][]byte)
	}
	s.snapshots[line] = slices.Clone(state)
	return nil
}

func (s *memoryStore) ReadSnapshot(before int64) (line int64, state []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.snapshots {
		if at < before && at > line {
			line = at
		}
	}
	return line, s.snapshots[line], nil
}

func (s *memoryStore) ReadLog(line int64) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := bytes.SplitAfter(s.log.Bytes(), []byte("\n"))
	if line > int64(len(lines)-1) {
		return nil, fmt.Errorf("the log has %d lines, asked for those after %d", len(lines)-1, line)
	}
	return io.NopCloser(bytes.NewReader(bytes.Join(lines[line:], nil))), nil
}

func (s *memoryStore) Close() error { return nil }
