package calibrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Result is what was measured.
type Result struct {
	// Decode are the speeds by slots, in rising order; a point that could not be measured is missing,
	// and a note says why.
	Decode []Point `json:"decode"`
	// PromptTokens and ResponseTokens it was measured with.
	PromptTokens   int `json:"prompt_tokens"`
	ResponseTokens int `json:"response_tokens"`
	// Prefill are times to the first token by length of the prompt. PrefillTokensPerS is the speed by their slope, 0
	// where there is no slope to be seen. FirstTokenS is the cost of a request beside its length.
	Prefill           []Prefill `json:"prefill,omitempty"`
	PrefillTokensPerS float64   `json:"prefill_tokens_per_s,omitempty"`
	FirstTokenS       float64   `json:"first_token_s,omitempty"`
	// Lengths of responses by prompt, Truncated how many of them ended at LengthMax.
	Lengths   [][]int `json:"lengths,omitempty"`
	LengthMax int     `json:"length_max,omitempty"`
	Truncated int     `json:"truncated,omitempty"`
	// SyncS are the times of switches of weights, loading included, in seconds.
	SyncS []float64 `json:"sync_s,omitempty"`
	// Knee is the number of slots beyond which more of them bring little, 0 where none was reached.
	Knee int `json:"knee,omitempty"`
	// Notes say what a reader should know of the figures.
	Notes []string `json:"notes,omitempty"`
}

// Point is a speed of decoding.
type Point struct {
	// Slots that decoded at once.
	Slots int `json:"slots"`
	// SlotTokensPerS is the speed of each, TokensPerS of all together.
	SlotTokensPerS Median  `json:"slot_tokens_per_s"`
	TokensPerS     float64 `json:"tokens_per_s"`
}

// Prefill is a time to the first token.
type Prefill struct {
	PromptTokens int    `json:"prompt_tokens"`
	FirstTokenS  Median `json:"first_token_s"`
}

// session is one calibration.
type session struct {
	Options
	result   Result
	draw     *rand.Rand
	requests atomic.Int64
	done     int
	// at is what is being measured of a stage: the slots that decode, or the tokens of a prompt.
	at int
}

// phase is a part of a calibration. missing says what is not measured once it has failed, empty where
// nothing of it was asked for.
type phase struct {
	measure func(context.Context) error
	missing func() string
}

// Measure measures. An error of the engine ends it, as ctx does. Beside an error of the engine is what
// was measured before it, if that has a speed of decoding; a note says what is missing.
func Measure(ctx context.Context, o Options) (Result, error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	m := &session{Options: o, draw: rand.New(rand.NewPCG(o.Seed, 1)), result: Result{PromptTokens: o.PromptTokens, ResponseTokens: o.ResponseTokens}}
	stages := m.phases()
	for i, s := range stages {
		err := s.measure(ctx)
		switch {
		case err != nil && (ctx.Err() != nil || len(m.result.Decode) == 0):
			return Result{}, err
		case err != nil:
			m.incomplete(stages[i:], err)
			return m.concluded(), err
		}
	}
	m.step("")
	return m.concluded(), nil
}

// phases are the parts of a calibration in their order.
func (m *session) phases() []phase {
	asked := func(n int, what func() string) func() string {
		if n == 0 {
			return func() string { return "" }
		}
		return what
	}
	return []phase{
		{m.decode, func() string { return "the speed of decoding in " + slots(m.at) + " and more" }},
		{m.prefill, asked(len(m.PrefillTokens), func() string {
			if len(m.result.Prefill) > 0 {
				return fmt.Sprintf("the time to read prompts of %d tokens and more", m.at)
			}
			return "the speed of reading prompts"
		})},
		{m.lengths, asked(len(m.Prompts), func() string { return "the lengths of responses" })},
		{m.syncs, asked(len(m.Versions), func() string { return "the time of a switch of weights" })},
	}
}

// incomplete notes what is missing after the first of some stages has failed.
func (m *session) incomplete(left []phase, err error) {
	var missing []string
	for _, s := range left {
		if what := s.missing(); what != "" {
			missing = append(missing, what)
		}
	}
	m.note("not measured: %s: %s", strings.Join(missing, "; "), strings.TrimPrefix(err.Error(), "calibrate: "))
}

// concluded is the result with what follows from it.
func (m *session) concluded() Result {
	m.contradictions()
	m.result.Knee = knee(m.result.Decode)
	return m.result
}

// step says what comes next.
func (m *session) step(next string) {
	if m.Progress != nil {
		m.Progress(min(m.done, m.pieces()), m.pieces(), next)
	}
	m.done++
}

func (m *session) note(format string, args ...any) {
	m.result.Notes = append(m.result.Notes, fmt.Sprintf(format, args...))
}

// request is one of its own with a random prompt of so many tokens. Not for several goroutines.
func (m *session) request(prompt, response int) port.GenerateRequest {
	tokens := make([]int32, prompt)
	low := m.Vocabulary / 8
	for i := range tokens {
		tokens[i] = int32(low + m.draw.IntN(m.Vocabulary-low))
	}
	return m.named(port.GenerateRequest{Prompt: tokens, MaxTokens: response})
}

// named gives a request a rollout that no other has.
func (m *session) named(r port.GenerateRequest) port.GenerateRequest {
	r.Rollout = port.RolloutID{Group: loop.GroupID(m.requests.Add(1)), Attempt: 1}
	return r
}

// decode measures every number of slots. The first round of all warms the engine up.
func (m *session) decode(ctx context.Context) error {
	for _, n := range m.concurrencies() {
		m.at = n
		if n == 1 {
			m.step("warming up")
			if _, err := m.round(ctx, n); err != nil {
				return err
			}
		}
		var speeds []float64
		for i := range m.Repeats {
			m.step(fmt.Sprintf("decoding in %d of %d slots, round %d of %d", n, m.Slots, i+1, m.Repeats))
			speed, err := m.round(ctx, n)
			if err != nil {
				return err
			}
			if speed > 0 {
				speeds = append(speeds, speed)
			}
		}
		m.point(n, speeds)
	}
	if len(m.result.Decode) == 0 {
		return fmt.Errorf("calibrate: no speed of decoding could be measured: %s", m.result.Notes[0])
	}
	return nil
}

// point makes a point of its rounds' speeds.
func (m *session) point(n int, speeds []float64) {
	if len(speeds) == 0 {
		m.note("%s: hardly ever did all of them decode at once: rounds of %v are too short for this engine, or responses too short to overlap; measure longer, or ask for longer responses",
			slots(n), (m.Point / time.Duration(m.Repeats)).Round(time.Millisecond))
		return
	}
	speed := MedianOf(speeds)
	m.result.Decode = append(m.result.Decode, Point{n, speed, float64(n) * speed.Value})
	if len(speeds) < m.Repeats {
		m.note("%s: in %d of %d rounds all slots hardly decoded at once; measure longer", slots(n), m.Repeats-len(speeds), m.Repeats)
	}
	if speed.noisy() {
		m.note("%s: the rounds differ by %.0f %%: something else uses the machine, or rounds are too short", slots(n), 100*(speed.High-speed.Low)/speed.Value)
	}
}

// round keeps so many slots at work for a while and returns the speed of each, 0 if they hardly
// decoded at once.
func (m *session) round(ctx context.Context, slots int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interrupt := make(chan struct{})
	began := time.Now()
	traces := make([]trace, slots)
	failures := make(chan error, slots)
	for w := range slots {
		// Prompts are drawn here: the draw is nobody's but this goroutine's.
		prompts := make([]port.GenerateRequest, promptsAhead)
		for i := range prompts {
			prompts[i] = m.request(m.PromptTokens, m.ResponseTokens)
			prompts[i].Interrupt = interrupt
		}
		go func() { failures <- m.keepBusy(ctx, prompts, interrupt, began, &traces[w]) }()
	}
	timer := time.NewTimer(m.Point / time.Duration(m.Repeats))
	defer timer.Stop()
	var failed error
	left := slots
	for open := true; left > 0; {
		select {
		case err := <-failures:
			if left--; err != nil && failed == nil {
				failed = err
				cancel()
			}
		case <-timer.C:
			if open {
				open = false
				close(interrupt)
			}
		}
	}
	if failed != nil {
		return 0, failed
	}
	return speed(traces), nil
}

// promptsAhead is how many prompts a slot has for a round; when it has used them up it begins anew.
const promptsAhead = 32

// keepBusy generates one response after the other until it is interrupted.
func (m *session) keepBusy(ctx context.Context, prompts []port.GenerateRequest, interrupt <-chan struct{}, began time.Time, t *trace) error {
	for i := 0; ; i++ {
		r := m.named(prompts[i%len(prompts)])
		t.begin()
		r.FirstToken = func(loop.Version) { t.arrive(time.Since(began), 1) }
		r.OnTokens = func(d port.Delta) { t.more(time.Since(began), len(d.Tokens)) }
		g, err := m.Engine.Generate(ctx, r)
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		t.end(time.Since(began), len(g.Tokens))
		select {
		case <-interrupt:
			return nil
		default:
		}
	}
}

// prefill measures times to the first token.
func (m *session) prefill(ctx context.Context) error {
	if len(m.PrefillTokens) == 0 {
		return nil
	}
	m.step("reading prompts, to warm up")
	_, _ = m.firstToken(ctx, slices.Max(m.PrefillTokens)) // one that is refused is met again below
	var lengths, times []float64
	for _, length := range m.PrefillTokens {
		m.at = length
		var seconds []float64
		for range m.Repeats {
			m.step(fmt.Sprintf("reading prompts of %d tokens", length))
			s, err := m.firstToken(ctx, length)
			if err != nil {
				m.slope(lengths, times)
				return err
			}
			seconds = append(seconds, s)
			lengths, times = append(lengths, float64(length)), append(times, s)
		}
		m.result.Prefill = append(m.result.Prefill, Prefill{length, MedianOf(seconds)})
	}
	m.slope(lengths, times)
	return nil
}

// slope makes a speed of times to the first token by length, where there are two lengths.
func (m *session) slope(lengths, times []float64) {
	if len(m.result.Prefill) < 2 {
		return
	}
	line := lineThrough(lengths, times)
	if !(line.slope > 0) {
		m.note("prefill: the time to the first token does not grow with the prompt up to %.0f tokens: no speed can be read from it", slices.Max(lengths))
		return
	}
	if line.slopeLow <= 0 {
		m.note("prefill: some longer prompts were read faster than shorter ones, so that no speed can be told from noise: measure on a machine that does nothing else, with a longer context or more rounds")
		return
	}
	m.result.PrefillTokensPerS, m.result.FirstTokenS = 1/line.slope, max(line.at0, 0)
	if line.slopeHigh > 1.5*line.slopeLow {
		m.note("prefill: its speed is between %.3g and %.3g tokens/s, by which lengths are compared: it is no straight line, or noisy", 1/line.slopeHigh, 1/line.slopeLow)
	}
}

// firstToken is the time of one, in seconds.
func (m *session) firstToken(ctx context.Context, prompt int) (float64, error) {
	began := time.Now()
	if _, err := m.Engine.Generate(ctx, m.request(prompt, 1)); err != nil {
		return 0, fmt.Errorf("calibrate: %w", err)
	}
	return time.Since(began).Seconds(), nil
}

// syncs switches weights.
func (m *session) syncs(ctx context.Context) error {
	for _, version := range m.Versions {
		m.step(fmt.Sprintf("switching to weights %d", version))
		began := time.Now()
		if err := m.Engine.Load(ctx, version); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		if err := m.Engine.Switch(ctx, version, true); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		m.result.SyncS = append(m.result.SyncS, time.Since(began).Seconds())
	}
	return nil
}
