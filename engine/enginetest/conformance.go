package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// Subject is what the conformance suite is run on: one or two servers that run.
type Subject struct {
	// URL of a server, and of another of the same kind and with the same weights, on which responses
	// are resumed. It is empty for none, and then they are resumed where they were.
	URL, Peer string
	// Dialect makes an engine's dialect.
	Dialect func() upstream.Dialect
	// Delivery of new weights, Cache what becomes of old keys and values.
	Delivery upstream.Delivery
	Cache    string
	// Weights are two directories, or other locations that the way goes by. Both servers serve the
	// first now, and will again. Sender has the same, even versions the first, where the way is by a
	// collective.
	Weights [2]string
	Sender  upstream.Sender
	// Vocabulary and Context of the model; 0 takes the server's word.
	Vocabulary, Context int
	// Requests is how many are made, at once as many as Slots; Switches how often weights change
	// meanwhile. Seed draws everything.
	Requests, Slots, Switches int
	Seed                      uint64
	// Patience is how long one call may take before it counts as hanging; 0 means two minutes.
	Patience time.Duration
	// Quiet is that of upstream.Options; 0 means its default.
	Quiet time.Duration
}

// Count is a figure of a report.
type Count struct {
	What  string `json:"what"`
	Count int    `json:"count"`
}

// Report is what the suite did, in order.
type Report []Count

// What reports count of every server, in this order.
const (
	countRequests  = "random requests"
	countResumes   = "resumes of interrupted ones"
	countSwitches  = "switches of weights"
	countAnswers   = "answers of the server recorded"
	countTokens    = "tokens compared by id and log-prob"
	countReported  = "of these, versions compared with the server's own spans"
	countDerived   = "of these, versions compared with the log of switches"
	countMixed     = "responses under more than one version"
	countDiffering = "differences"
	countFailed    = "requests that failed"
	countChanged   = "updates after which log-probs were the new model's"
	countRefused   = "bad input refused with an error, the engine unhurt"
)

var figures = []string{countRequests, string(wishWhole), string(wishAbort), string(wishInterrupt), countResumes, countSwitches, countAnswers,
	countTokens, countReported, countDerived, countMixed, countDiffering, countFailed, countChanged, countRefused}

// add counts under a name, in the order in which names come first.
func (r *Report) add(what string, n int) {
	for i := range *r {
		if (*r)[i].What == what {
			(*r)[i].Count += n
			return
		}
	}
	*r = append(*r, Count{what, n})
}

// Run runs the suite as subtests of t and returns what it did.
func Run(t *testing.T, s Subject) Report {
	s.Patience = cmp.Or(s.Patience, 2*time.Minute)
	c := &conformance{Subject: s, report: &Report{}}
	for _, what := range figures {
		c.report.add(what, 0)
	}
	c.engines = append(c.engines, c.open(t, "engine", s.URL))
	if s.Peer != "" {
		c.engines = append(c.engines, c.open(t, "peer", s.Peer))
	}
	if !t.Run("start", c.start) {
		return *c.report
	}
	t.Run("requests", c.requests)
	t.Run("weights", c.weights)
	t.Run("bad input", c.badInput)
	if c.Delivery != upstream.DeliveryNone && c.version%2 != 0 {
		t.Run("end", func(t *testing.T) { c.switchAll(t) })
	}
	return *c.report
}

// conformance is one run of the suite.
type conformance struct {
	Subject
	report  *Report
	engines []*subject
	caps    upstream.Capabilities
	version loop.Version
	// outcomes of the random requests.
	outcomes []*outcome
}

// subject is one engine over a recorder.
type subject struct {
	engine   *upstream.Engine
	dialect  upstream.Dialect
	server   *upstream.Server
	recorder *Recorder
	// switches are when each version's switch began and ended, by the recorder's clock.
	switches []interval
	// barriers are when each of them took place, known once the requests are over.
	barriers []time.Duration
}

// interval is a stretch of a recorder's time.
type interval struct{ from, to time.Duration }

// open makes an engine over a recorder in front of a server.
func (c *conformance) open(t *testing.T, name, url string) *subject {
	t.Helper()
	recorder := NewRecorder(url, nil)
	t.Cleanup(recorder.Close)
	server, err := upstream.NewServer(upstream.ServerOptions{URL: recorder.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	dialect := c.Dialect()
	engine, err := upstream.New(upstream.Options{
		Name: name, Slots: c.Slots, Server: server, Dialect: dialect, Delivery: c.Delivery, Cache: c.Cache, Vocabulary: c.Vocabulary,
		Views: c.view, Sender: c.Sender, Quiet: c.Quiet, Logf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("closing %s: %v", name, err)
		}
		if r, ok := dialect.(upstream.Restarter); ok && c.Delivery == upstream.DeliveryRestart {
			if err := r.Stop(); err != nil {
				t.Errorf("stopping the server of %s: %v", name, err)
			}
		}
	})
	return &subject{engine: engine, dialect: dialect, server: server, recorder: recorder}
}

// VersionsMax is the last version that there is in a run with so many switches.
func VersionsMax(switches int) loop.Version { return loop.Version(switches) + 100 }

// view is the directory of a version: even ones are the first model, odd ones the second.
func (c *conformance) view(_ context.Context, v loop.Version) (string, error) {
	if v > VersionsMax(c.Switches) {
		return "", fmt.Errorf("version %d: %w", v, os.ErrNotExist)
	}
	return c.Weights[v%2], nil
}

// context bounds one call.
func (c *conformance) context(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(t.Context(), c.Patience, fmt.Errorf("nothing after %v: it hangs", c.Patience))
}

// start makes every engine serve version 0 and asks what it can.
func (c *conformance) start(t *testing.T) {
	for _, s := range c.engines {
		c.serve(t, s, 0)
	}
	caps, ok := c.engines[0].engine.Capabilities()
	if !ok {
		t.Fatal("the engine serves a version and knows no capabilities")
	}
	c.caps = caps
	c.Context = cmp.Or(c.Context, caps.Context)
	c.Vocabulary = cmp.Or(c.Vocabulary, caps.Vocabulary)
	if c.Context < 64 || c.Vocabulary < 32 {
		t.Fatalf("a context of %d tokens and a vocabulary of %d are too small, or unknown: say them in the Subject", c.Context, c.Vocabulary)
	}
	t.Logf("progress: %s, context %d, vocabulary %d, pause %v, weights by %s, spans of versions %v, scores %v",
		caps.Software, c.Context, c.Vocabulary, caps.Pause, c.Delivery, caps.VersionSpans, caps.Score)
}

// serve loads and switches to a version, and remembers when.
func (c *conformance) serve(t *testing.T, s *subject, v loop.Version) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*c.Patience)
	defer cancel()
	if err := s.engine.Load(ctx, v); err != nil {
		t.Fatalf("loading version %d: %v", v, err)
	}
	from := s.recorder.Now()
	if err := s.engine.Switch(ctx, v, true); err != nil {
		t.Fatalf("switching to version %d: %v", v, err)
	}
	s.switches = append(s.switches, interval{from, s.recorder.Now()})
}

// switchAll takes every engine to the next version, one after the other.
func (c *conformance) switchAll(t *testing.T) {
	t.Helper()
	c.version++
	for _, s := range c.engines {
		c.serve(t, s, c.version)
	}
	c.report.add(countSwitches, len(c.engines))
}

// source is what a request of that number draws from.
func (c *conformance) source(number int) *rand.Rand {
	return rand.New(rand.NewPCG(c.Seed, uint64(number)))
}
