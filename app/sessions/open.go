package sessions

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/loop/workload/session"
)

// ErrNoPrompts refuses a trace without a length of its prompts.
var ErrNoPrompts = errors.New("the trace has no lengths of prompts")

// Open opens a file of recorded sessions, a run directory or the trace of a run. PromptTokens is the length of the
// prompts of a trace, which has none. The error wraps [ErrNoPrompts] where it is 0 and needed.
func Open(path string, promptTokens int) (*session.Record, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if known, err := episodesKnown(path); err != nil || known {
			return session.Of(path, episodes(path)), err
		}
	}
	file, err := trace.Open(path)
	if err != nil {
		return nil, err
	}
	reader, err := trace.NewReader(file)
	if err != nil { // another program's, unless it is a run's and broken
		file.Close()
		if info.IsDir() || trace.Is(path) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return session.Open(path)
	}
	if promptTokens == 0 {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, ErrNoPrompts)
	}
	return session.Of(path, rollouts(file, reader, path, promptTokens)), nil
}

// attempt names a rollout.
type attempt struct {
	group           loop.GroupID
	sample, attempt int32
}

// rollouts are the scored rollouts of a trace in the order of their ends, each as one call. It closes the file.
func rollouts(file io.Closer, reader *trace.Reader, path string, promptTokens int) iter.Seq2[session.Session, error] {
	return func(yield func(session.Session, error) bool) {
		defer file.Close()
		now, began := int64(0), map[attempt]int64{}
		var torn *trace.Error
		for {
			record, err := reader.Next()
			switch {
			case errors.Is(err, io.EOF), errors.As(err, &torn) && torn.Torn: // of a run that goes on, what it has written so far
				return
			case err != nil:
				yield(session.Session{}, fmt.Errorf("%s: %w", path, err))
				return
			case record.Action != nil && record.Action.Kind == loop.StartRollout:
				began[attempt{record.Action.Group, record.Action.Sample, record.Action.Attempt}] = now
			case record.Event != nil:
				e := record.Event
				now = e.Time
				if !ended(e.Kind) {
					continue
				}
				of := attempt{e.Group, e.Sample, e.Attempt}
				start := began[of]
				delete(began, of)
				if e.Kind == loop.RolloutScored && !yield(scored(e, start, promptTokens), nil) {
					return
				}
			}
		}
	}
}

// ended reports whether an event ends an attempt.
func ended(k loop.EventKind) bool {
	return k == loop.RolloutScored || k == loop.RolloutFailed || k == loop.RolloutAborted
}

func scored(e *trace.Event, startNS int64, promptTokens int) session.Session {
	return session.Session{ID: fmt.Sprintf("g%d-s%d-a%d", e.Group, e.Sample, e.Attempt), Group: int(e.Group) - 1, Sample: int(e.Sample), StartS: float64(startNS) / 1e9,
		Calls: []session.Call{{InputTokens: promptTokens, OutputTokens: int(e.Tokens), TookS: float64(e.GenerateNS) / 1e9}}}
}

// errEnough ends the reading of a log.
var errEnough = errors.New("enough")

// episodesKnown reports whether a run has episodes with the tokens of their turns: whether one of the first has.
func episodesKnown(dir string) (known bool, err error) {
	read := 0
	err = player.ReadLog(dir, func(r episode.Record) error {
		if read++; len(r.Tokens) > 0 || read == 1000 {
			known = len(r.Tokens) > 0
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return known, err
}

// episodes are the judged episodes of a run in the order of their ends, those of evaluations left out.
func episodes(dir string) iter.Seq2[session.Session, error] {
	return func(yield func(session.Session, error) bool) {
		err := player.ReadLog(dir, func(r episode.Record) error {
			var a attempt
			if _, err := fmt.Sscanf(r.Rollout, "g%d-s%d-a%d", &a.group, &a.sample, &a.attempt); err != nil || r.Reward == nil || len(r.Tokens) == 0 {
				return nil
			}
			if !yield(played(a, r), nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(session.Session{}, err)
		}
	}
}

// played is an episode as a session. The gap before a turn is all the time since the policy's last word.
func played(a attempt, r episode.Record) session.Session {
	s := session.Session{ID: r.Rollout, Group: int(a.group) - 1, Sample: int(a.sample)}
	saidNS := int64(-1)
	for turn, t := range r.Tokens {
		c := session.Call{InputTokens: t.Input, OutputTokens: t.Output}
		if first, last, ok := span(r.Spans, turn); ok {
			if c.TookS = float64(last-first) / 1e9; turn == 0 {
				s.StartS = float64(first) / 1e9
			} else if saidNS >= 0 {
				c.GapS = float64(max(first-saidNS, 0)) / 1e9
			}
			saidNS = last
		}
		s.Calls = append(s.Calls, c)
	}
	return s
}

// span is when the policy began and ended to speak in a turn, in ns; not ok for a turn of no time.
func span(spans []episode.Span, turn int) (first, last int64, ok bool) {
	for _, p := range spans {
		if p.Kind != episode.Model || p.Turn != turn {
			continue
		}
		if !ok {
			first = p.StartNS
		}
		last, ok = p.EndNS, true
	}
	return first, last, ok
}
