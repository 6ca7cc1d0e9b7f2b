package main

import (
	"slices"
	"strings"
	"testing"
)

// What pytest reports is counted: an error outside of a test is a failure, and no test at all is one, too.
func TestJudgeJunit(t *testing.T) {
	s, err := judgeJunit("tests", []byte(`<?xml version="1.0"?><testsuites><testsuite name="pytest">
		<testcase classname="a" name="one"/><testcase classname="a" name="two"><failure message="x">y</failure></testcase>
		<testcase classname="" name="three"><error message="x"/></testcase>
		<testcase classname="b" name="four"><skipped message="no GPU"/></testcase><testcase classname="b" name="five"><skipped message="no GPU"/></testcase>
	</testsuite></testsuites>`))
	if err != nil || s.Passed != 1 || s.Failed != 2 || !slices.Equal(s.Failures, []string{"a.two", "three"}) || len(s.Skipped) != 1 || s.Skipped[0] != (skip{"no GPU", 2}) {
		t.Errorf("%+v, %v", s, err)
	}
	for text, want := range map[string]string{`<testsuites><testsuite/></testsuites>`: "ran no test", `<testsuites>`: "the report of pytest"} {
		if _, err := judgeJunit("tests", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
