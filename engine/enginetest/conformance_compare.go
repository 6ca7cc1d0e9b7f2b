package enginetest

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// failuresShown is how many differences are told in full.
const failuresShown = 10

// heard is one answer of a server, and the engine that heard it.
type heard struct {
	*rawResponse
	from *subject
	at   time.Duration
}

// compare holds every outcome against the bytes that the servers sent.
func (c *conformance) compare(t *testing.T, outcomes []*outcome) {
	answers, broken := c.answers(t)
	shown := 0
	fail := func(format string, args ...any) {
		if shown++; shown <= failuresShown {
			t.Errorf(format, args...)
		} else {
			t.Fail()
		}
	}
	c.report.add(countRequests, len(outcomes))
	for _, o := range outcomes {
		c.report.add(string(o.wish), 1)
		if o.resumed > 0 {
			c.report.add(countResumes, o.resumed)
		}
		if err := o.check(c.Vocabulary); err != nil {
			c.report.add(countFailed, 1)
			fail("request %d, %s: %v", o.number, o.wish, err)
			continue
		}
		if err := c.compareOne(o, answers[o.number]); err != nil {
			c.report.add(countDiffering, 1)
			fail("request %d, %s: %v", o.number, o.wish, err)
		}
	}
	for _, err := range broken {
		fail("%v", err)
	}
	t.Logf("progress: compared %d requests, %d differ or failed", len(outcomes), shown)
}

// answers reads what the servers said, by the number of the request.
func (c *conformance) answers(t *testing.T) (map[int][]heard, []error) {
	answers := map[int][]heard{}
	var broken []error
	for _, s := range c.engines {
		all := s.recorder.Settle()
		for _, of := range s.switches {
			s.barriers = append(s.barriers, barrier(of, all))
		}
		for _, e := range all {
			if e.Method != "POST" || !slices.Contains(generatePaths, e.Path) || e.Status != 200 || !e.Stream() {
				continue
			}
			raw, err := readRaw(e)
			if err != nil {
				broken = append(broken, err)
				continue
			}
			number := numberOf(raw.prompt)
			answers[number] = append(answers[number], heard{raw, s, e.At})
			c.report.add(countAnswers, 1)
		}
	}
	if len(answers) == 0 {
		t.Error("the recorder has seen no answer: is the engine asking somebody else?")
	}
	for _, all := range answers {
		sort.Slice(all, func(i, j int) bool { return len(all[i].prompt) < len(all[j].prompt) })
	}
	return answers, broken
}

// compareOne holds one outcome against its answers: every token comes from exactly one of them, at
// its place, with its log-prob and its version, and no prompt was anything but what there was.
func (c *conformance) compareOne(o *outcome, answers []heard) error {
	g, whole := o.got, slices.Concat(o.req.Prompt, o.got.Tokens)
	covered := 0
	for i, a := range answers {
		start := len(a.prompt) - len(o.req.Prompt)
		if start < 0 || start > len(g.Tokens) || !slices.Equal(a.prompt, whole[:len(a.prompt)]) {
			return fmt.Errorf("call %d was asked to go on from other tokens than there were, at place %d of %d", i, start, len(g.Tokens))
		}
		if start > covered {
			return fmt.Errorf("tokens %d to %d come from no answer", covered, start)
		}
		end := min(start+len(a.tokens), len(g.Tokens))
		if i+1 < len(answers) {
			end = min(end, len(answers[i+1].prompt)-len(o.req.Prompt))
		}
		for place := start; place < end; place++ {
			token, logprob := a.tokens[place-start], a.logprobs[place-start]
			if g.Tokens[place] != token || g.Logprobs[place] != logprob {
				return fmt.Errorf("token %d is recorded as %d at %v, the server sent %d at %v", place, g.Tokens[place], g.Logprobs[place], token, logprob)
			}
			version, reported, err := c.versionOf(a, place-start)
			if err != nil {
				return fmt.Errorf("token %d: %w", place, err)
			}
			if version != g.Versions[place] {
				return fmt.Errorf("token %d is recorded as of version %d, reported %v as %d", place, g.Versions[place], reported, version)
			}
			if !reported && !g.Derived {
				return fmt.Errorf("token %d: the server did not say its version, and the response is not marked as derived", place)
			}
			c.countToken(reported)
		}
		covered = max(covered, end)
	}
	if covered != len(g.Tokens) {
		return fmt.Errorf("%d tokens recorded, the server sent %d", len(g.Tokens), covered)
	}
	return c.countVersions(g.Versions)
}

func (c *conformance) countToken(reported bool) {
	c.report.add(countTokens, 1)
	if reported {
		c.report.add(countReported, 1)
	} else {
		c.report.add(countDerived, 1)
	}
}

// countVersions counts responses that saw more than one version.
func (c *conformance) countVersions(versions []loop.Version) error {
	if len(versions) > 0 && slices.Min(versions) != slices.Max(versions) {
		c.report.add(countMixed, 1)
	}
	return nil
}

// versionOf is the version of a token: what the server says, else what the log of switches says.
func (c *conformance) versionOf(a heard, place int) (v loop.Version, reported bool, err error) {
	if len(a.spans) > 0 {
		for _, s := range a.spans {
			if place < s.start || place >= s.end {
				continue
			}
			for v := loop.Version(0); v <= c.version; v++ {
				if strings.HasPrefix(s.label, upstream.Label(v)+"-") {
					return v, true, nil
				}
			}
			return 0, true, fmt.Errorf("the server names the version %q, which was never given to it", s.label)
		}
		return 0, true, fmt.Errorf("no span of %v has place %d", a.spans, place)
	}
	arrived := a.arrived[place]
	v = loop.NoVersion
	for i, at := range a.from.barriers {
		if arrived >= at {
			v = loop.Version(i)
		}
	}
	if v == loop.NoVersion {
		return 0, false, fmt.Errorf("it arrived before the first switch was over")
	}
	return v, false, nil
}

// updatePaths are those by which servers are given weights.
var updatePaths = []string{"/collective_rpc", "/update_weights", "/update_weights_from_disk", "/update_weights_from_distributed", "/v1/load_lora_adapter", "/finish_weight_update"}

// resumePaths are those by which servers that were paused go on.
var resumePaths = []string{"/resume", "/continue_generation"}

// barrier is the moment from which a server may have sampled with the new weights: when it is asked to
// go on after the update; of one that is not paused the end of the update, as it says; else the
// switch's end (of a server that is started again, say). What was sampled before a pause may still
// be on its way when the update has ended.
func barrier(of interval, all []Exchange) time.Duration {
	at, updated := of.to, false
	for _, e := range all {
		if e.Status != 200 || len(e.Pieces) == 0 || !slices.Contains(updatePaths, e.Path) {
			continue
		}
		if e.Path == "/collective_rpc" && !bytes.Contains(e.Body, []byte("reload_weights")) {
			continue
		}
		if ended := e.At + e.Pieces[len(e.Pieces)-1].After; e.At >= of.from && ended <= of.to {
			at, updated = ended, true
		}
	}
	if !updated {
		return at
	}
	resumed := of.to
	for _, e := range all {
		if slices.Contains(resumePaths, e.Path) && e.At >= at {
			resumed = min(resumed, e.At)
		}
	}
	if resumed == of.to { // nobody asked
		return at
	}
	return resumed
}
