package dashboard

import (
	"math"
	"slices"
	"sort"

	"github.com/headway-rl/headway/loop"
)

// span is a stretch of one row of the timeline.
type span struct {
	from, to int64 // ns since the run began
	ref      int32 // the group, or the step
	version  int32
	count    int32 // how many were merged into it
	kind     SpanKind
	longest  uint16 // the length of the longest that was merged into it, see size; 0 where nothing was
}

// size is the length of the longest of a merged span as the upper bits of a float: two bytes beside the rest, and
// still in order.
func (s *span) size() uint16 {
	if s.longest != 0 {
		return s.longest
	}
	return uint16(math.Float32bits(float32(s.to-s.from)) >> 15)
}

// rows hold the spans that have ended, by track. Spans of one track do not overlap, and are added in the
// order of time. When there are more than max in all, the older half is thinned: neighbours are merged until
// they are half as many, so that memory stays bounded and the newest window is kept in full.
type rows struct {
	spans    [][]span
	pyramids []pyramid
	total    int
	max      int
	// generation counts the thinnings.
	generation int64
	// scratch is what the last tile was made in.
	scratch []placed
}

func newRows(tracks, most int) rows {
	return rows{spans: make([][]span, tracks), pyramids: make([]pyramid, tracks), max: most}
}

func (r *rows) add(track int, s span) {
	if s.to <= s.from {
		return
	}
	r.spans[track] = append(r.spans[track], s)
	if len(r.spans[track])%blockSpans == 0 {
		r.pyramids[track].grow(r.spans[track])
	}
	if r.total++; r.total > r.max {
		r.thin()
	}
}

// thin merges the older half.
func (r *rows) thin() {
	cut := r.median()
	half := r.before(cut)
	// The finest first, so that what was thinned before is merged further only where the rest does not do.
	for width := int64(1000); r.before(cut) > half/2 && width < 1<<60; width *= 4 {
		for t, spans := range r.spans {
			n := upTo(spans, cut)
			m := merger{width: width, out: spans[:0]}
			for i := range spans[:n] {
				m.add(&spans[i])
			}
			m.flush()
			kept := append(m.out, spans[n:]...)
			r.total -= len(spans) - len(kept)
			r.spans[t] = kept
		}
	}
	for t, spans := range r.spans {
		r.pyramids[t].rebuild(spans)
	}
	r.generation++
}

// median is a time before which about half of the spans end.
func (r *rows) median() int64 {
	low, high := int64(0), int64(0)
	for _, spans := range r.spans {
		if n := len(spans); n > 0 {
			high = max(high, spans[n-1].to)
		}
	}
	for low < high {
		if mid := low + (high-low)/2; r.before(mid) < r.total/2 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// before counts the spans that end by a time.
func (r *rows) before(at int64) (n int) {
	for _, spans := range r.spans {
		n += upTo(spans, at)
	}
	return n
}

// upTo counts the first spans that end by a time.
func upTo(spans []span, at int64) int {
	return sort.Search(len(spans), func(i int) bool { return spans[i].to > at })
}

// merger joins neighbours that are shorter than a width, and lie closer together than that. They look like the
// longest of them.
type merger struct {
	width int64
	out   []span
	// open is the span being made.
	open span
	has  bool
}

func (m *merger) add(s *span) {
	if m.has && s.to-s.from < m.width && m.open.to-m.open.from < m.width && s.from-m.open.to < m.width {
		size := s.size()
		m.open.longest = m.open.size()
		if size > m.open.longest {
			m.open.longest, m.open.version, m.open.ref, m.open.kind = size, s.version, s.ref, s.kind
		}
		m.open.to = max(m.open.to, s.to)
		m.open.count += s.count
		return
	}
	m.flush()
	m.open, m.has = *s, true
}

func (m *merger) flush() {
	if m.has {
		m.out, m.has = append(m.out, m.open), false
	}
}

// flow is an arrow from the end of a group's last rollout to the train step that consumed it.
type flow struct {
	from, to       int64
	track, version int32
	group          loop.GroupID
}

// flows are the newest arrows, in the order of their heads.
type flows struct {
	all []flow
	max int
	// longest is the longest there was.
	longest int64
}

func (f *flows) add(one flow) {
	if len(f.all) >= 2*f.max {
		f.all = slices.Delete(f.all, 0, len(f.all)-f.max)
	}
	f.all = append(f.all, one)
	f.longest = max(f.longest, one.to-one.from)
}

// within returns the arrows that touch a stretch of time, none if they are more than limit.
func (f *flows) within(from, to int64, limit int) []flow {
	var found []flow
	first := sort.Search(len(f.all), func(i int) bool { return f.all[i].to >= from })
	for _, one := range f.all[first:] {
		if one.to > to+f.longest {
			break
		}
		if one.from > to {
			continue
		}
		if len(found) == limit {
			return nil
		}
		found = append(found, one)
	}
	return found
}
