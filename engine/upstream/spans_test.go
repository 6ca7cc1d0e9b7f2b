package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

func knownLabels(label string) (loop.Version, bool) {
	var v loop.Version
	_, err := fmt.Sscanf(label, "v%d", &v)
	return v, err == nil && v < 50
}

func TestTrap10SpansCountFromTheResponseOrFromThePrompt(t *testing.T) {
	const prompt = 7
	for name, c := range map[string]struct {
		spans []Span
		n     int
		cut   bool
		want  string // versions, or an error's words after !
	}{
		"from the response":              {spans: []Span{{"v1", 0, 2}, {"v2", 2, 5}}, n: 5, want: "[1 1 2 2 2]"},
		"from the prompt":                {spans: []Span{{"v1", 7, 9}, {"v2", 9, 12}}, n: 5, want: "[1 1 2 2 2]"},
		"from the prompt, which is in":   {spans: []Span{{"v1", 0, 9}, {"v2", 9, 12}}, n: 5, want: "[1 1 2 2 2]"},
		"too few":                        {spans: []Span{{"v1", 0, 4}}, n: 5, want: "!add up"},
		"too many":                       {spans: []Span{{"v1", 0, 6}}, n: 5, want: "!add up"},
		"too many, but it was cut off":   {spans: []Span{{"v1", 0, 3}, {"v2", 3, 6}}, n: 5, cut: true, want: "[1 1 1 2 2]"},
		"begins late":                    {spans: []Span{{"v1", 1, 6}}, n: 5, want: "!add up"},
		"a gap":                          {spans: []Span{{"v1", 0, 2}, {"v2", 3, 5}}, n: 5, want: "!gap"},
		"an overlap":                     {spans: []Span{{"v1", 0, 3}, {"v2", 2, 5}}, n: 5, want: "!gap"},
		"an empty span":                  {spans: []Span{{"v1", 0, 0}, {"v2", 0, 5}}, n: 5, want: "!gap"},
		"a label nobody knows":           {spans: []Span{{"v1", 0, 2}, {"default", 2, 5}}, n: 5, want: "!default"},
		"two readings that agree":        {spans: []Span{{"v1", 0, 14}}, n: 5, cut: true, want: "[1 1 1 1 1]"},
		"two readings that do not agree": {spans: []Span{{"v1", 0, 3}, {"v2", 3, 14}}, n: 5, cut: true, want: "!two ways"},
	} {
		versions, err := resolveSpans(c.spans, prompt, c.n, c.cut, knownLabels)
		if got := fmt.Sprint(versions); err == nil && got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if words, fails := strings.CutPrefix(c.want, "!"); fails && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%s: %v, want an error about %q", name, err, words)
		}
	}
}

func TestSpansOfEventsAddUp(t *testing.T) {
	known := addSpans(nil, []Span{{"v1", 0, 3}})
	known = addSpans(known, nil)
	known = addSpans(known, []Span{{"v1", 3, 4}, {"v2", 4, 5}})
	if want := []Span{{"v1", 0, 3}, {"v1", 3, 4}, {"v2", 4, 5}}; !slices.Equal(known, want) {
		t.Errorf("events that go on: %v", known)
	}
	known = addSpans(known, []Span{{"v1", 0, 4}, {"v2", 4, 8}})
	if want := []Span{{"v1", 0, 4}, {"v2", 4, 8}}; !slices.Equal(known, want) {
		t.Errorf("an event that begins again: %v", known)
	}
}

// A server that counts its spans from the prompt is understood through switches and resumes.
func TestTrap10ThroughSwitches(t *testing.T) {
	for _, pause := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.VersionSpans, f.caps.Pause, f.offset = true, pause, 1
			e := newFakeEngine(t, f, nil)
			testInFlight(t, f, e, 4)
			if s := e.Status(); s.Named == 0 || s.Disagreements != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Weights that somebody else has put into the server sample nothing that is trained on.
func TestForeignWeightsAreNoticed(t *testing.T) {
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.VersionSpans = true
			e := newFakeEngine(t, f, nil)
			var group sync.WaitGroup
			group.Go(func() {
				req := request(0, 100)
				if told {
					req.OnTokens = func(port.Delta) {}
				}
				g, err := e.Generate(t.Context(), req)
				if told && !errors.Is(err, ErrLied) || !told && !errors.Is(err, port.ErrEngineDown) {
					t.Errorf("ended with %v", err)
				}
				if !told && len(g.Tokens) != 0 {
					t.Errorf("%d tokens of unknown weights stand beside the error", len(g.Tokens))
				}
			})
			time.Sleep(204 * time.Millisecond)
			f.set(func() { f.label, f.weights = "somebody's", 77 })
			group.Wait()
			if s := e.Status(); s.State != "down" {
				t.Errorf("%+v", s)
			}
		})
	}
}
