package upstream

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
)

// What is sampled behind a prefix has its text, whatever the prefix's is.
func TestTheTextOfAPrefix(t *testing.T) {
	for name, c := range map[string]struct {
		prefix live.Prefix
		want   string
	}{
		"known":              {live.Prefix{Text: "ab"}, "ab<8>"},
		"of none":            {live.Prefix{TextPartial: true}, "<8>"},
		"none, and it is so": {live.Prefix{}, "<8>"},
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
			req.Sampling = &live.Sampling{Temperature: 1, Stop: c.stop}
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
