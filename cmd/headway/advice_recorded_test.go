package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/explain/diagnosis"
)

// advice is a change that a page or a command advises for a run, as resimulate takes it.
type advice struct {
	from string
	set  []string
	// lowers says that it promises a lower staleness.
	lowers bool
}

// No advice stands anywhere that resimulation of the same run contradicts: neither the frontier's cheapest move nor a
// change of a finding raises surely what it says to lower.
func TestAdviceOfRecordedRunsHolds(t *testing.T) {
	skipShort(t)
	dir := t.TempDir()
	tried := 0
	archives, _ := filepath.Glob(filepath.Join(recordedDir, "*"+archiveSuffix))
	for _, path := range archives {
		name := filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), archiveSuffix))
		unpack(t, path, name)
		for _, a := range append(frontierAdvice(t, name), findingsAdvice(t, name)...) {
			if !a.lowers {
				continue
			}
			arguments := []string{"resimulate", name, "--json"}
			for _, set := range a.set {
				if strings.HasPrefix(set, "modelled.train.") { // a resimulation has the run's own train steps
					continue
				}
				arguments = append(arguments, "--set", set)
			}
			_, stdout, stderr := headway(t, arguments...)
			var doc compare.Resimulation
			if err := json.Unmarshal([]byte(stdout), &doc); err != nil || len(doc.Arms) == 0 || doc.Arms[0].Summary == nil {
				t.Logf("%s: %s of %s cannot be resimulated: %.200s", filepath.Base(name), a.set, a.from, stderr+stdout)
				continue
			}
			tried++
			e := doc.Arms[0].Estimates["staleness_mean"]
			if e.Difference95 != nil && e.Difference95[0] > 0 {
				t.Errorf("%s: %s of %s is to lower the staleness, and resimulation raises it by %.3g (%.3g at least)", filepath.Base(name), a.set, a.from, *e.Difference, e.Difference95[0])
			}
		}
	}
	if tried < 4 {
		t.Errorf("%d advices were tried: too few to say anything", tried)
	}
}

// moves are the words of a move with the keys that make it.
var moves = []struct {
	words *regexp.Regexp
	keys  []string
}{
	{regexp.MustCompile(`queue factor [\d.]+ → ([\d.]+)`), []string{"queue.factor"}},
	{regexp.MustCompile(`batch \d+ → (\d+) rollouts`), []string{"train.batch"}},
	{regexp.MustCompile(`concurrency \d+ → (\d+)`), []string{"rollout.concurrency", "engines.0.slots"}},
}

// frontierAdvice is the cheapest move of the page of the frontier.
func frontierAdvice(t *testing.T, name string) []advice {
	t.Helper()
	shown, err := compare.Open(name, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	shown.Follow(t.Context())
	reply := httptest.NewRecorder()
	shown.Model().Data().ServeHTTP(reply, httptest.NewRequest("GET", "/api/v1/view/frontier", nil))
	var f dashboard.Frontier
	if json.Unmarshal(reply.Body.Bytes(), &f) != nil || f.Cheapest == nil {
		return nil
	}
	for _, m := range moves {
		if to := m.words.FindStringSubmatch(f.Cheapest.Change); to != nil {
			if n, _ := strconv.Atoi(to[1]); m.keys[0] == "rollout.concurrency" && n > int(f.Inputs["concurrency"]) {
				t.Errorf("%s: the frontier's page advises %q: engines do not keep their speed", filepath.Base(name), f.Cheapest.Change)
			}
			a := advice{from: "the frontier's page (" + f.Cheapest.Change + ")", lowers: true}
			for _, key := range m.keys {
				a.set = append(a.set, fmt.Sprintf("%s=%s", key, to[1]))
			}
			return []advice{a}
		}
	}
	if !strings.HasPrefix(f.Cheapest.Change, "sync") {
		t.Errorf("%s: the frontier's page advises %q, which no key makes", filepath.Base(name), f.Cheapest.Change)
	}
	return nil
}

// findingsAdvice are the changes of the findings.
func findingsAdvice(t *testing.T, name string) (list []advice) {
	t.Helper()
	_, stdout, stderr := headway(t, "diagnose", "--json", name)
	var r diagnosis.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, f := range r.Findings {
		if c := f.Change; c != nil && len(c.Overrides) > 0 {
			list = append(list, advice{from: "finding " + f.Code, set: c.Overrides, lowers: c.Gain > 0})
		}
	}
	return list
}
