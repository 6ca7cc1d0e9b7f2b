package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// resultsDir holds what was found, one file a server: docs/engines-tested.md is made of it.
const resultsDir = "cmd/lab/bench/engines/results"

// conformance is the package whose tests run engine/enginetest on a server.
const conformance = "./cmd/lab/bench/engines"

// result is what was found of a server.
type result struct {
	Engine   string            `json:"engine"`
	Server   string            `json:"server"`
	Date     string            `json:"date"`
	Versions map[string]string `json:"versions"`
	Suites   []suite           `json:"suites"`
	// Counts are what the conformance suite did, in its order.
	Counts []count `json:"counts,omitempty"`
}

// suite is what the tests of one package found.
type suite struct {
	Package string `json:"package"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed,omitempty"`
	Skipped []skip `json:"skipped,omitempty"`
	// Failures are the names of the tests that failed.
	Failures []string `json:"failures,omitempty"`
}

// skip is a reason and how many checks it kept from running.
type skip struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// count is a figure of the conformance suite.
type count struct {
	What  string `json:"what"`
	Count int    `json:"count"`
}

// suites runs the tests of an engine's adapter and the conformance suite.
func (h *harness) suites(ctx context.Context, e engine, servers []*server, models []string, python string, r *result) error {
	report := filepath.Join(h.cache, e.name+"-report.json")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	directories := models
	if e.models != modelsMoE && e.models != modelsAdders {
		var err error
		if directories, err = h.models(ctx, modelsHF); err != nil {
			return err
		}
	}
	environment := append(os.Environ(), "HEADWAY_TEST_WEIGHTS="+strings.Join(models, ":"), "HEADWAY_TEST_DIRECTORIES="+strings.Join(directories, ":"),
		"HEADWAY_TEST_PYTHON="+python, "HEADWAY_TEST_REPORT="+report,
		fmt.Sprintf("HEADWAY_TEST_REQUESTS=%d", h.requests), e.variable+"="+servers[0].url)
	environment = append(environment, e.environment(site{python: python})...)
	for _, name := range e.also {
		environment = append(environment, name+"="+servers[0].url)
	}
	if e.served != "" {
		environment = append(environment, e.served+"="+models[0])
	}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.url)
	}
	environment = append(environment, e.variable+"_ALL="+strings.Join(urls, ","))
	if len(servers) > 1 {
		environment = append(environment, e.variable+"_PEER="+servers[1].url)
	}
	if e.models == modelsGGUF {
		environment = append(environment, e.variable+"_BIN="+llamaServer(python))
	}
	for _, pkg := range slices.Concat(e.tests, []string{conformance}) {
		if _, err := os.Stat(pkg); err != nil {
			h.logf("%s: %s is not there, left out", e.name, pkg)
			continue
		}
		args := []string{"test", "-json", "-count=1", "-timeout=90m", pkg}
		if pkg == conformance {
			if e.suites == noSuite {
				continue
			}
			args = append(args, "-run="+cmp.Or(e.suites, "^TestConformance$"))
		} else if e.only != "" {
			args = append(args, "-run="+e.only)
		}
		if h.run != "" {
			args = append(args, "-run="+h.run)
		}
		s, err := h.suite(ctx, pkg, args, environment)
		if err != nil {
			return err
		}
		r.Suites = append(r.Suites, s)
	}
	if e.pytest != "" && h.run == "" {
		s, err := h.pytest(ctx, e, python, environment)
		if err != nil {
			return err
		}
		r.Suites = append(r.Suites, s)
	}
	text, err := os.ReadFile(report)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, json.Unmarshal(text, &r.Counts))
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
	Package              string
	Elapsed              float64
}

// suite runs the tests of a package and says how they go on.
func (h *harness) suite(ctx context.Context, pkg string, args, environment []string) (suite, error) {
	h.logf("go %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = environment
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return suite{}, err
	}
	if err := cmd.Start(); err != nil {
		return suite{}, err
	}
	s := h.follow(pkg, out)
	err = cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited && s.Failed > 0 {
		err = nil // the tests have said so
	}
	if err != nil {
		return s, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	h.logf("%s: %d passed, %d failed, %d skipped", pkg, s.Passed, s.Failed, s.skipped())
	return s, ctx.Err()
}

// place is where a line of a test's output comes from.
var place = regexp.MustCompile(`^\s*[\w.]+\.go:\d+: `)

// follow reads what the tests say: tests within tests count, those around them do not.
func (h *harness) follow(pkg string, out io.Reader) suite {
	s := suite{Package: pkg}
	said := map[string][]string{}
	around := map[string]bool{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		if outer, _, inner := cutLast(e.Test, "/"); inner {
			around[outer] = true
		}
		switch {
		case e.Action == "output" && e.Test != "":
			said[e.Test] = append(said[e.Test], e.Output)
			if strings.Contains(e.Output, "progress: ") {
				h.logf("  %s", strings.TrimSpace(place.ReplaceAllString(e.Output, "")))
			}
		case e.Action == "output" && strings.Contains(e.Output, "panic"):
			h.logf("  %s", strings.TrimSpace(e.Output))
		case e.Test == "" && e.Action == "fail" && s.Failed == 0:
			s.Failed, s.Failures = 1, []string{"the package as a whole"}
		case e.Test == "" || around[e.Test] && e.Action != "fail":
		case e.Action == "pass":
			s.Passed++
		case e.Action == "fail" && slices.ContainsFunc(s.Failures, func(name string) bool { return strings.HasPrefix(name, e.Test+"/") }):
			// what is inside has failed, and was counted
		case e.Action == "fail":
			s.Failed, s.Failures = s.Failed+1, append(s.Failures, e.Test)
			h.logf("  FAIL %s\n%s", e.Test, strings.Join(said[e.Test], ""))
		case e.Action == "skip":
			s.skip(reasonOf(said[e.Test]))
		}
	}
	return s
}

func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// reasonOf is why a test was skipped: its last words.
func reasonOf(said []string) string {
	for _, line := range slices.Backward(said) {
		if place.MatchString(line) {
			return strings.TrimSpace(place.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}

func (s *suite) skip(reason string) {
	for i := range s.Skipped {
		if s.Skipped[i].Reason == reason {
			s.Skipped[i].Count++
			return
		}
	}
	s.Skipped = append(s.Skipped, skip{reason, 1})
}

func (s *suite) skipped() (n int) {
	for _, k := range s.Skipped {
		n += k.Count
	}
	return n
}

// failure is the tests that failed, nil for none.
func (r result) failure() error {
	var failures []string
	for _, s := range r.Suites {
		for _, name := range s.Failures {
			failures = append(failures, s.Package+" "+name)
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("failed: %s", strings.Join(failures, ", "))
}

// save writes the result into its file.
func (r result) save() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(resultsDir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(resultsDir, r.Engine+".json"), append(text, '\n'), 0o644)
}
