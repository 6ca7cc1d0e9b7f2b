package upstream

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// IndexerTopK are the positions that a sparse attention chose in each layer of a pass: int32, aligned to passes.
const IndexerTopK = "indexer_topk"

// ChannelStatus says what has become of a side channel's rows.
type ChannelStatus struct {
	Name string
	// Answers counts those whose rows were kept, Dropped the others, by reason.
	Answers int64
	Dropped map[rows.Reason]int64
	// Unstarted counts answers with the rows before the first that was asked for.
	Unstarted int64
}

// channelCounts counts what becomes of rows, by channel.
type channelCounts struct {
	mu  sync.Mutex
	all map[string]*ChannelStatus
}

// of returns the counts of a channel; the lock must be held.
func (c *channelCounts) of(name string) *ChannelStatus {
	if c.all == nil {
		c.all = map[string]*ChannelStatus{}
	}
	if c.all[name] == nil {
		c.all[name] = &ChannelStatus{Name: name, Dropped: map[rows.Reason]int64{}}
	}
	return c.all[name]
}

// kept counts an answer whose rows were kept.
func (c *channelCounts) kept(name string, unstarted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of(name)
	s.Answers++
	if unstarted {
		s.Unstarted++
	}
}

// dropped counts an answer whose rows were dropped, and reports whether it is the first for its reason.
func (c *channelCounts) dropped(name string, why rows.Reason) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of(name)
	s.Dropped[why]++
	return s.Dropped[why] == 1
}

// unstarted reports whether the server was seen to ignore the first row that is asked for.
func (c *channelCounts) unstarted(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(name).Unstarted > 0
}

// status is a copy of the counts, in the order of the names.
func (c *channelCounts) status() []ChannelStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ChannelStatus
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		s := *c.all[name]
		s.Dropped = maps.Clone(s.Dropped)
		out = append(out, s)
	}
	return out
}

// side is what one call brings of side channels.
type side struct {
	e      *Engine
	r      *response
	prompt int // tokens before the first that the call samples
	start  int // the first row of passes that was asked for
	forms  []rows.Form
	fields []*rows.Field // by form; nil for lists
	reader *rows.Reader
	masked bool          // the server says masks of this call
	kept   rows.MaskRows // of the call's tokens, those after a stop included
}

// newSide returns what a call collects, nil where the server is asked for no channel.
func (c *call) newSide() *side {
	if len(c.s.caps.Channels) == 0 {
		return nil
	}
	s := &side{e: c.e, r: c.r, prompt: len(c.request.Prompt), start: c.request.Known, forms: c.s.caps.Channels, masked: c.request.Asks(channel.SamplingMask)}
	for i := range s.forms {
		form := &s.forms[i]
		if form.Wire == rows.Lists {
			s.fields = append(s.fields, nil)
			continue
		}
		s.fields = append(s.fields, rows.NewField(rows.FieldOptions{
			Form: form, Key: form.Name, Discard: c.r.req.Keep == nil,
			Likely: func() int { return s.likely(form) },
			Most:   func() int { return s.prompt + c.request.MaxTokens },
		}))
	}
	return s
}

// rowsSpare are rows that an answer may have beyond those of the tokens that have arrived so far.
const rowsSpare = 64

// likely is how many rows of passes an answer has that ends now.
func (s *side) likely(form *rows.Form) int {
	n := s.prompt + s.r.sampled + rowsSpare
	if !form.Whole && !s.e.channels.unstarted(form.Name) {
		n -= s.start
	}
	return min(n, s.prompt+s.r.max-s.r.base)
}

// read takes rows out of a stream of events.
func (s *side) read(ctx context.Context, body io.Reader) io.Reader {
	var fields []*rows.Field
	for _, f := range s.fields {
		if f != nil {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 { // a server may say experts to who has not asked for any
		fields = append(fields, rows.NewField(rows.FieldOptions{Key: channel.RoutedExperts, Discard: true}))
	}
	s.reader = rows.NewReader(ctx, body, fields)
	return s.reader
}

// take notes the masks of an event.
func (s *side) take(d *Delta) {
	if s.masked && s.r.req.Keep != nil {
		s.kept.Add(d.MaskLengths, d.MaskIDs)
	}
}

// close gives memory back.
func (s *side) close() {
	if s.reader != nil {
		s.reader.Close()
	}
	s.kept.Release()
	for _, f := range s.fields {
		if f != nil {
			f.Release()
		}
	}
}

// keep hands on what there is of each channel. The call's tokens are known to stay by now.
func (s *side) keep() {
	if s.r.req.Keep == nil {
		return
	}
	for i := range s.forms {
		form := &s.forms[i]
		var got port.Rows
		var why rows.Reason
		unstarted := false
		switch {
		case form.Wire != rows.Lists:
			got, unstarted, why = s.passes(form, s.fields[i])
		case s.masked:
			got, why = s.masks(form)
		default:
			continue
		}
		switch {
		case why == rows.Missing && s.r.sampled == 0: // cut off before it began
		case why != "":
			s.drop(form.Name, why)
		case got.Count > 0:
			s.e.channels.kept(form.Name, unstarted)
			s.r.req.Keep(got)
		}
	}
}

// drop counts rows that are of no use.
func (s *side) drop(name string, why rows.Reason) {
	if s.e.channels.dropped(name, why) {
		s.e.opt.Logf("engine %s: the rows of %s that came with an answer are dropped: %s; further answers of the kind are counted in the status", s.e.opt.Name, name, why)
	}
}

// passes are the rows of a call, one for each pass. They are of the tokens that stay: what was sampled after a stop has
// rows as well.
func (s *side) passes(form *rows.Form, f *rows.Field) (got port.Rows, unstarted bool, why rows.Reason) {
	data, n, why := f.Rows()
	if why != "" {
		return got, false, why
	}
	start, all := s.start, s.prompt+s.r.sampled-1
	switch {
	case form.Whole:
		start = 0
	case n == all && start > 0:
		start, unstarted = 0, true
	}
	if n != all-start {
		return got, false, rows.Count
	}
	if why := form.Judge(data); why != "" {
		return got, false, why
	}
	count := min(n, s.prompt+len(s.r.tokens)-s.r.base-1-start)
	if !form.Whole { // the next call asks for what comes behind
		s.r.known = max(s.r.known, start+count)
	}
	got = port.Rows{Header: form.Header, Start: start, Count: count, First: s.prompt}
	if count > 0 {
		got.Data = data[:count*form.RowBytes()]
	}
	return got, unstarted, ""
}

// masks are the masks of the call's tokens that stay.
func (s *side) masks(form *rows.Form) (got port.Rows, why rows.Reason) {
	tokens := s.r.tokens[s.r.base:]
	got = port.Rows{Header: form.Header, Start: s.r.base, Count: len(tokens), First: s.prompt}
	got.Data, why = s.kept.Of(tokens, s.r.sampled, s.e.vocabulary(s.r.fitted))
	return got, why
}

// unsaid are the side channels that are asked for and that the server does not say.
func (c *Capabilities) unsaid(asked []string) (out []Missing) {
	for _, name := range asked {
		if !slices.ContainsFunc(c.Channels, func(f rows.Form) bool { return f.Name == name }) {
			out = append(out, Missing{What: "it says no " + name + " (rollout.channels)"})
		}
	}
	return out
}
