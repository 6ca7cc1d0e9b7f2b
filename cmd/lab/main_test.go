package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// typed runs one command line and returns what a shell would see.
func typed(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, diagnostics bytes.Buffer
	code = lab.Main(arguments, strings.NewReader(""), &out, &diagnostics)
	return code, out.String(), progressLines.ReplaceAllString(diagnostics.String(), "")
}

// progressLines are lines of progress, which simulations print that take seconds: a busy machine's do.
var progressLines = regexp.MustCompile(`(?m)^[\d,]+ of [\d,]+ simulations\b.*\n`)
