package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// junit is what pytest writes of its tests.
type junit struct {
	Suites []struct {
		Cases []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// pytest runs the tests of an engine that are written in Python.
func (h *harness) pytest(ctx context.Context, e engine, python string, environment []string) (suite, error) {
	report := filepath.Join(h.cache, e.name+"-pytest.xml")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return suite{}, err
	}
	h.logf("pytest %s", e.pytest)
	cmd := exec.CommandContext(ctx, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml="+report, e.pytest)
	cmd.Env = environment
	said, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return suite{}, fmt.Errorf("pytest %s: %w", e.pytest, err)
	}
	text, read := os.ReadFile(report)
	if read != nil {
		return suite{}, fmt.Errorf("pytest %s: %w: %s", e.pytest, errors.Join(err, read), bytes.TrimSpace(said))
	}
	s, judged := judgeJunit(e.pytest, text)
	if judged != nil {
		return s, judged
	}
	if s.Failed > 0 {
		h.logf("%s", said)
	}
	if err != nil && s.Failed == 0 {
		return s, fmt.Errorf("pytest %s: %w: %s", e.pytest, err, bytes.TrimSpace(said))
	}
	h.logf("%s: %d passed, %d failed, %d skipped", e.pytest, s.Passed, s.Failed, s.skipped())
	return s, ctx.Err()
}

// judgeJunit counts the tests of a report.
func judgeJunit(name string, text []byte) (suite, error) {
	s := suite{Package: name}
	var all junit
	if err := xml.Unmarshal(text, &all); err != nil {
		return s, fmt.Errorf("the report of pytest %s: %w", name, err)
	}
	for _, part := range all.Suites {
		for _, c := range part.Cases {
			switch {
			case c.Failure != nil || c.Error != nil:
				s.Failed, s.Failures = s.Failed+1, append(s.Failures, strings.Trim(c.Class+"."+c.Name, "."))
			case c.Skipped != nil:
				s.skip(c.Skipped.Message)
			default:
				s.Passed++
			}
		}
	}
	if s.Passed+s.Failed == 0 {
		return s, fmt.Errorf("pytest %s ran no test", name)
	}
	return s, nil
}
