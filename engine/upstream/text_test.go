package upstream

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// What is sampled behind a prefix has its text, whatever the prefix's is.
func TestTheTextOfAPrefix(t *testing.T) {
	for name, c := range map[string]struct {
		prefix port.Prefix
		want   string
	}{
		"known":              {port.Prefix{Text: "ab"}, "ab<8>"},
		"of none":            {port.Prefix{TextPartial: true}, "<8>"},
		"none, and it is so": {port.Prefix{}, "<8>"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			e := newFakeEngine(t, f, nil)
			req := request(1, 2)
			req.Prefix = c.prefix
			req.Prefix.Tokens, req.Prefix.Logprobs, req.Prefix.Versions = []int32{fakePromptOf}, []float32{-1}, []loop.Version{0}
			g, err := e.Generate(t.Context(), req)
			if err != nil || g.Text != c.want || g.TextPartial != c.prefix.TextPartial {
				t.Errorf("%s: the text %q, partial %v, %v", name, g.Text, g.TextPartial, err)
			}
		})
	}
}

// holdingDialect brings a token without its text.
type holdingDialect struct {
	fakeDialect
	held int32
}

func (d holdingDialect) Decoder(Request, *Capabilities) Decoder { return holdingDecoder{held: d.held} }

type holdingDecoder struct {
	fakeDecoder
	held int32
}

func (d holdingDecoder) Event(data []byte, delta *Delta) error {
	err := d.fakeDecoder.Event(data, delta)
	if slices.Contains(delta.Tokens, d.held) {
		delta.Text = ""
	}
	return err
}

// A response that breaks off may lack text that the server has held back, and says so.
func TestAResponseThatBreaksOffMayLackText(t *testing.T) {
	for name, c := range map[string]struct {
		held    int32 // the token whose text does not come
		stop    []string
		partial bool
	}{
		"nothing held back":      {},
		"half a character":       {held: 9, partial: true},
		"perhaps of a stop text": {stop: []string{"end"}, partial: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.fault = func(int, fakeCall) fault { return fault{hangs: true, after: 3} }
			e := newFakeEngine(t, f, func(o *Options) { o.Dialect = holdingDialect{fakeDialect{f}, c.held} })
			req, interrupt := request(1, 20), make(chan struct{})
			req.Interrupt, req.OnTokens = interrupt, closeAfter(3, interrupt)
			req.Sampling = &port.Sampling{Temperature: 1, Stop: c.stop}
			g, err := e.Generate(t.Context(), req)
			if err != nil || !g.Interrupted || len(g.Tokens) != 3 || g.TextPartial != c.partial {
				t.Fatalf("%s: %+v, %v", name, g, err)
			}
			f.set(func() { f.fault = func(int, fakeCall) fault { return fault{} } })
			req.Prefix, req.Interrupt, req.OnTokens = g.Prefix(), nil, nil
			if g, err = e.Generate(t.Context(), req); err != nil || len(g.Tokens) != 20 || g.TextPartial != c.partial {
				t.Errorf("%s: going on: %+v, %v", name, g, err)
			}
		})
	}
}

// laggingDialect brings text later than tokens, and reads tokens.
type laggingDialect struct {
	fakeDialect
	lag int // tokens whose text is held back
}

func (d laggingDialect) Decoder(Request, *Capabilities) Decoder { return &laggingDecoder{lag: d.lag} }

func (laggingDialect) Render(context.Context, *Server, []byte, []byte, bool, *Capabilities) ([]int32, error) {
	return nil, errors.ErrUnsupported
}

func (laggingDialect) Encode(context.Context, *Server, string, *Capabilities) ([]int32, error) {
	return nil, errors.ErrUnsupported
}

func (laggingDialect) Decode(_ context.Context, _ *Server, tokens []int32, _ *Capabilities) (string, error) {
	text := ""
	for _, token := range tokens {
		text += fakeText(token)
	}
	return text, nil
}

// laggingDecoder holds the text of the last tokens back until the end.
type laggingDecoder struct {
	fakeDecoder
	lag  int
	held []string
}

func (d *laggingDecoder) Event(data []byte, delta *Delta) error {
	if err := d.fakeDecoder.Event(data, delta); err != nil {
		return err
	}
	d.held = append(d.held, delta.Text)
	delta.Text = ""
	for len(d.held) > d.lag || delta.Finish != "" && len(d.held) > 0 {
		delta.Text += d.held[0]
		d.held = d.held[1:]
	}
	return nil
}

// What a server has held back where a call was cut off is read from the tokens, and told of in its place.
func TestTextOverACutIsWhole(t *testing.T) {
	for _, lag := range []int{1, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.fault = func(call int, _ fakeCall) fault { return fault{breaks: call < 3, after: 10} }
			e := newFakeEngine(t, f, func(o *Options) { o.Dialect = laggingDialect{fakeDialect{f}, lag} })
			req, told := request(1, 40), ""
			req.Sampling = &port.Sampling{Temperature: 1, Stop: []string{"nothing"}}
			req.OnTokens = func(d port.Delta) { told += d.Text }
			g, err := e.Generate(t.Context(), req)
			if err != nil || g.TextPartial || told != g.Text {
				t.Errorf("%v; partial %v, told of %q of %q", err, g.TextPartial, told, g.Text)
			}
			checkTokens(t, g, fakePromptOf)
		})
	}
}

// wordlessDialect brings no text, and reads tokens.
type wordlessDialect struct{ laggingDialect }

func (wordlessDialect) Decoder(Request, *Capabilities) Decoder { return wordlessDecoder{} }

type wordlessDecoder struct{ fakeDecoder }

func (d wordlessDecoder) Event(data []byte, delta *Delta) error {
	err := d.fakeDecoder.Event(data, delta)
	delta.Text = ""
	return err
}

// What was read of a response that a wordless server has cut off is not all of its text.
func TestTextOverACutOfAWordlessServerIsWhole(t *testing.T) {
	for _, most := range []int{40, 31} { // the last call brings one token in the second case
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.fault = func(call int, _ fakeCall) fault { return fault{breaks: call < 3, after: 10} }
			e := newFakeEngine(t, f, func(o *Options) { o.Dialect = wordlessDialect{laggingDialect{fakeDialect{f}, 0}} })
			g, err := e.Generate(t.Context(), request(1, most))
			whole := ""
			for _, token := range g.Tokens {
				whole += fakeText(token)
			}
			if err != nil || len(g.Tokens) != most || g.TextPartial || g.Text != whole {
				t.Errorf("%v; partial %v, the text %q of %q", err, g.TextPartial, g.Text, whole)
			}
		})
	}
}

// Text that comes alone between the last token and the end stays in its place.
func TestTextBehindTheLastTokenKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault {
			return fault{after: 2, says: sayEvents(
				`{"T":[3],"P":[-1],"X":"c"}`, `{"X":"d"}`, `{"X":"e","F":"length"}`)}
		}
		e := newFakeEngine(t, f, nil)
		req, told := request(1, 3), ""
		req.OnTokens = func(d port.Delta) { told += d.Text }
		g, err := e.Generate(t.Context(), req)
		if want := fakeText(fakePromptOf) + fakeText(fakePromptOf+1) + "cde"; err != nil || g.Text != want || told != want {
			t.Errorf("the text %q, told of %q, want %q; %v", g.Text, told, want, err)
		}
	})
}

// A server that sends text without end for few tokens lies, and is not listened to until it is silent.
func TestTextIsBoundedByTheTokens(t *testing.T) {
	const most = textBytesSpare + 3*textBytesToken
	for _, c := range []struct {
		name   string
		events []string
		lies   bool
	}{
		{"as much as may be", []string{textEvent(most - len("<7>c")), `{"T":[2,3],"P":[-1,-1],"X":"c","F":"length"}`}, false},
		{"one byte more", []string{textEvent(most - len("<7>c")), `{"T":[2,3],"P":[-1,-1],"X":"cd","F":"length"}`}, true},
		{"in small pieces", []string{textEvent(most / 2), textEvent(most / 2), textEvent(most / 2)}, true},
		{"behind the last token", []string{`{"T":[2,3],"P":[-1,-1],"X":"c"}`, textEvent(most / 2), textEvent(most / 2)}, true},
		{"behind the end", []string{`{"T":[2,3],"P":[-1,-1],"F":"stop"}`, textEvent(most)}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.fault = func(int, fakeCall) fault { return fault{after: 1, says: sayEvents(c.events...)} }
			g, err := newFakeEngine(t, f, nil).Generate(t.Context(), request(1, 3))
			if errors.Is(err, ErrLied) != c.lies || err == nil && len(g.Text) != most || len(g.Text) > most {
				t.Errorf("%s: %d bytes of text, %v", c.name, len(g.Text), err)
			}
		})
	}
	if overlong(1<<20, math.MaxInt) || !overlong(textBytesSpare+1, 0) {
		t.Error("the bound is wrong at the ends of the numbers of tokens")
	}
}

// textEvent is an event of so many bytes of text alone.
func textEvent(n int) string { return `{"X":"` + strings.Repeat("x", n) + `"}` }

// sayEvents are several events in the place of a fault's one.
func sayEvents(events ...string) string { return strings.Join(events, "\n\ndata: ") }

// A stop text over a cut ends the text where it ends, in the event that ends the response as well.
func TestAStopTextOverACutEndsTheText(t *testing.T) {
	last, next := fakeText(fakePromptOf+9), fakeText(fakePromptOf+10)
	for name, c := range map[string]struct {
		finish string
		stop   []string
		want   string // of the two tokens at the cut
	}{
		"by length":                      {"length", []string{last + next}, last + next},
		"by stop":                        {"stop", []string{last + next}, last + next},
		"the first of two":               {"length", []string{last + next + "<18>", last + next}, last + next},
		"one within the event besides":   {"stop", []string{fakeText(fakePromptOf + 12), last + next}, last + next},
		"one that ends inside a token":   {"length", []string{last + "<1"}, last + "<1"},
		"one that begins inside a token": {"length", []string{"6>" + next}, last + next},
	} {
		for _, together := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.fault = func(call int, _ fakeCall) fault {
					return []fault{{breaks: true, after: 10}, {together: together, finish: c.finish, after: 20}}[call]
				}
				e := newFakeEngine(t, f, func(o *Options) { o.Dialect = laggingDialect{fakeDialect{f}, 2} })
				req, told := request(1, 40), ""
				req.Sampling = &port.Sampling{Temperature: 1, Stop: c.stop}
				req.OnTokens = func(d port.Delta) { told += d.Text }
				g, err := e.Generate(t.Context(), req)
				want := "<7><8><9><10><11><12><13><14><15>" + c.want
				if err != nil || g.Truncated || g.Pruned || g.TextPartial || g.Text != want || told != want {
					t.Errorf("%s, together %v: truncated %v, partial %v, the text %q, told of %q, want %q; %v",
						name, together, g.Truncated, g.TextPartial, g.Text, told, want, err)
				}
			})
		}
	}
}

// A stop text over the place where a response went on ends it: the server sees half of it.
func TestAStopTextOverACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(call int, _ fakeCall) fault { return fault{breaks: call == 0, after: 10} }
		e := newFakeEngine(t, f, func(o *Options) { o.Dialect = laggingDialect{fakeDialect{f}, 2} })
		req := request(1, 40)
		last := fakeText(fakePromptOf+9) + fakeText(fakePromptOf+10)
		req.Sampling = &port.Sampling{Temperature: 1, Stop: []string{"nothing", last}}
		g, err := e.Generate(t.Context(), req)
		if err != nil || g.Truncated || g.Pruned || g.Interrupted || len(g.Tokens) < 11 || len(g.Tokens) > 13 || !strings.HasSuffix(g.Text, last) {
			t.Errorf("%d tokens, %q, %v", len(g.Tokens), g.Text, err)
		}
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.active) > 0 {
			t.Error("it is sampled on")
		}
	})
}
