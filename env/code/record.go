package code

import (
	"context"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
)

// spans are put together one after the other.
type spans struct {
	at   int64
	list []episode.Span
}

// to has a span follow the last one up to a time; one of no length is left out.
func (s *spans) to(kind episode.Kind, name string, endNS int64) {
	if endNS > s.at {
		s.list = append(s.list, episode.Span{Kind: kind, Name: name, StartNS: s.at, EndNS: endNS})
		s.at = endNS
	}
}

// record is a rollout's line in the making.
type record struct {
	spans
	episode.Record
}

// met notes the limit that a program met, and what it raised.
func (r *record) met(o outcome) {
	r.Note = o.what
	if o.limit == "" {
		return
	}
	r.Limits = map[string]int{string(o.limit): 1}
	if n := len(r.list); n > 0 {
		r.list[n-1].Class = o.limit
	}
}

// failed notes why there is no verdict. Where the context has ended, whoever asked for it has given it up.
func (r *record) failed(ctx context.Context, err error, nowNS int64) {
	r.to(episode.Verifier, "", nowNS)
	r.Failure, r.Note = sandbox.ClassOf(err), err.Error()
	if ctx.Err() != nil || r.Failure == "" {
		r.Failure = episode.Unwanted
	}
	if n := len(r.list); n > 0 {
		r.list[n-1].Class = r.Failure
	}
}

// line is the record with its spans.
func (r *record) line() episode.Record {
	r.Spans = r.list
	return r.Record
}
