package scorer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// Channels of servers. A Teacher says its likeliest tokens too, and a Reference the log-probs of sampled tokens alone.
const (
	Teacher   = "teacher"
	Reference = "reference"
)

// Server is a server that scores.
type Server struct {
	// Name in logs and status. Kind is vllm or sglang. Channel is Teacher or Reference.
	Name, Kind, Channel string
	// Slots is how many calls it gets at once, at least 1.
	Slots int
	// Home is where it is. An empty Model of it leaves the choice to the server.
	Home *upstream.Server
}

// Options of a Pool.
type Options struct {
	// Servers of one channel are alike: each scores any rollout.
	Servers []Server
	// TopK is how many of its likeliest tokens a teacher says beside each sampled one; 0 for none.
	TopK int
	// Timeout bounds one call, Attempts is how often a sequence is tried in all, at least 1.
	Timeout  time.Duration
	Attempts int
	// Vocabulary is the number of token ids that the policy has; 0 where it is not known.
	Vocabulary int
}

// dialect is how one kind of server is asked.
type dialect interface {
	// call is the request for scores of q's tokens.
	call(q *question, model string) upstream.Call
	// read reads the answer into a, whose slices have their sizes.
	read(body []byte, q *question, a *answer) error
}

var dialects = map[string]dialect{"vllm": vllm{}, "sglang": sglang{}}

// Pool scores rollouts. It is a [port.Scorer].
type Pool struct {
	opt Options
	// lanes are the channels that have servers: teachers, references.
	lanes []*lane
}

// New returns a pool. No server is asked anything yet.
func New(o Options) (*Pool, error) {
	p := &Pool{opt: o}
	if len(o.Servers) == 0 || o.TopK < 0 || o.Timeout <= 0 || o.Attempts < 1 {
		return nil, fmt.Errorf("scorer: %d servers, top %d, %v a call and %d attempts: want at least one of each, and no negative top", len(o.Servers), o.TopK, o.Timeout, o.Attempts)
	}
	for _, s := range o.Servers {
		if s.Slots < 1 || s.Home == nil || dialects[s.Kind] == nil || s.Channel != Teacher && s.Channel != Reference {
			return nil, fmt.Errorf("scorer: server %q of kind %q for %q has %d slots: want vllm or sglang, teacher or reference, a Home and at least 1", s.Name, s.Kind, s.Channel, s.Slots)
		}
		p.lane(s.Channel).add(s)
	}
	return p, nil
}

// lane returns the one of a channel, made where it is missing.
func (p *Pool) lane(name string) *lane {
	for _, l := range p.lanes {
		if l.channel == name {
			return l
		}
	}
	l := &lane{channel: name}
	p.lanes = append(p.lanes, l)
	return l
}

// Score implements [port.Scorer]. Teachers and references are asked at the same time, sequences one after the other.
func (p *Pool) Score(ctx context.Context, s *port.Sample) ([]port.Scores, error) {
	scores, errs := make([][]port.Scores, len(p.lanes)), make([]error, len(p.lanes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i, l := range p.lanes {
		all.Go(func() {
			if scores[i], errs[i] = p.scoreBy(ctx, l, s); errs[i] != nil {
				cancel() // the others' scores are of no use
			}
		})
	}
	all.Wait()
	var out []port.Scores
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) { // which may be of the other's failure
			return nil, err
		}
		out = append(out, scores[i]...)
	}
	slices.SortStableFunc(out, func(a, b port.Scores) int { return int(a.Sequence - b.Sequence) })
	return out, errors.Join(errs...)
}

// scoreBy has the sequences that are trained on scored by the servers of a lane.
func (p *Pool) scoreBy(ctx context.Context, l *lane, s *port.Sample) (out []port.Scores, err error) {
	top := 0
	if l.channel == Teacher {
		top = p.opt.TopK
	}
	for i := range s.Sequences() {
		if s.Untrained(i) {
			continue
		}
		first, end := s.Sequence(i)
		q, ok := ask(s.Tokens[first:end], s.LossMask[first:end], top, p.opt.Vocabulary)
		if !ok {
			continue
		}
		if q.from == 0 {
			return nil, fmt.Errorf("%w: sequence %d of %v begins with a token that the policy sampled: no model can score it", port.ErrData, i, s.ID)
		}
		a, err := p.try(ctx, l, q)
		if err != nil {
			return nil, err
		}
		out = append(out, a.scores(l.channel, q, int32(i))...)
	}
	return out, nil
}

// pauseFirst is the wait before a server is asked again, which doubles up to pauseMost.
const (
	pauseFirst = 250 * time.Millisecond
	pauseMost  = 10 * time.Second
)

// try asks servers of a lane until one answers, at most as often as the options say.
func (p *Pool) try(ctx context.Context, l *lane, q *question) (a answer, err error) {
	var tried []*member
	wait := pauseFirst
	for attempt := 1; ; attempt++ {
		m, err := l.acquire(ctx, tried)
		if err != nil {
			return a, err
		}
		began := time.Now()
		a, err = p.askOne(ctx, m, q)
		l.release(m, time.Since(began), err, ctx.Err() != nil)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
		err = fmt.Errorf("%s %s: %w", l.channel, m.Name, err)
		if attempt == p.opt.Attempts {
			return a, fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		if tried = append(tried, m); len(tried) < len(l.members) {
			continue
		}
		tried = nil
		if err := pause.For(ctx, max(wait, after(err))); err != nil {
			return a, err
		}
		wait = min(2*wait, pauseMost)
	}
}

// after is how long a server wants to be left alone.
func after(err error) time.Duration {
	var status *upstream.StatusError
	if errors.As(err, &status) {
		return status.After
	}
	return 0
}

// askOne makes one call, and checks its answer.
func (p *Pool) askOne(ctx context.Context, m *member, q *question) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opt.Timeout, fmt.Errorf("it has not answered within %v (scoring.timeout_s)", p.opt.Timeout))
	defer cancel()
	d := dialects[m.Kind]
	body, err := m.Home.Open(ctx, http.MethodPost, d.call(q, m.Home.Model))
	if err == nil {
		var text []byte
		text, err = readAll(body, q.bytesMax())
		err = errors.Join(err, body.Close())
		if err == nil {
			a = newAnswer(q)
			if err = d.read(text, q, &a); err == nil {
				err = a.check(q)
			}
			return a, err
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a, advised(err, q.top)
}

var _ port.Scorer = (*Pool)(nil)

// Close closes the connections that are idle.
func (p *Pool) Close() error {
	for _, s := range p.opt.Servers {
		s.Home.Close()
	}
	return nil
}

// headers of a channel's rows: ids are nil for a reference.
func headers(name string, top int) (ids, logprobs *channel.Header) {
	if name == Reference {
		return nil, &channel.Header{Name: channel.ReferenceLogprobs, DType: channel.F32, Align: channel.Sampled}
	}
	var row []int
	if top > 0 {
		row = []int{top + 1}
	}
	return &channel.Header{Name: channel.TeacherIDs, DType: channel.I32, Row: row, Align: channel.Sampled},
		&channel.Header{Name: channel.TeacherLogprobs, DType: channel.F32, Row: row, Align: channel.Sampled}
}
