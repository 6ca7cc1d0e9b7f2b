package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/licences"
)

// TestBill: the bill lists the binary's modules, Go's library and the pages' libraries, each once and nothing else.
func TestBill(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.org/headway", Version: "v1"}}
	want := []string{"pkg:golang/std@1.26.8"}
	for _, c := range licences.Components() {
		switch c.Kind {
		case licences.Module:
			info.Deps = append(info.Deps, &debug.Module{Path: c.Name, Version: c.Version})
			want = append(want, "pkg:golang/"+c.Name+"@"+c.Version)
		case licences.Library:
			want = append(want, "pkg:npm/"+strings.ReplaceAll(c.Name, "@", "%40")+"@"+c.Version)
		}
	}
	document, err := bill(info, []byte("binary"), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range *document.Components {
		got = append(got, c.PackageURL)
		if c.Licenses == nil || (*c.Licenses)[0].Expression == "" || c.Version == "" {
			t.Errorf("%s has licence %v and version %q", c.Name, c.Licenses, c.Version)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(got) < 74 {
		t.Errorf("the bill lists %d components:\n%s\nwant %d:\n%s", len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
	}
	var text strings.Builder
	if err := encode(&text, document); err != nil || !strings.Contains(text.String(), `"bomFormat": "CycloneDX"`) {
		t.Errorf("%v: %.100s", err, text.String())
	}
	info.Deps[0] = &debug.Module{Path: info.Deps[0].Path, Version: "v0.0.1"}
	if _, err := bill(info, nil, ""); err == nil || !strings.Contains(err.Error(), info.Deps[0].Path+" v0.0.1") {
		t.Errorf("a version without a known licence is listed: %v", err)
	}
}

// said are what the programs of an audit print, by the first word that a call of theirs has of these.
type said map[string]string

func (s said) run(_ context.Context, _ string, argv ...string) ([]byte, error) {
	for word, text := range s {
		if slices.Contains(argv, word) {
			if text == "" {
				return nil, errors.New("no route to host")
			}
			return []byte(text), nil
		}
	}
	return nil, nil
}

const (
	clearGo     = `{"config":{}} {"SBOM":{"modules":[]}} {"finding":{"osv":"GO-1","fixed_version":"v2","trace":[{"module":"a.b/c","version":"v1"}]}}`
	clearPython = `{"dependencies":[{"name":"httpx","version":"0.28.1","vulns":[]}]}`
	clearPages  = `{"auditReportVersion":2,"vulnerabilities":{}}`
)

// TestAudit: a database that does not answer, or that skips a package, is never a pass.
func TestAudit(t *testing.T) {
	words := func(changed said) said {
		all := said{"download": `{"Version":"v0.0.0-20261105","Dir":"/d"}`, "-mode": clearGo, "pip-audit": clearPython, "--json": clearPages}
		for word, text := range changed {
			all[word] = text
		}
		return all
	}
	for name, c := range map[string]struct {
		said said
		code int
		text string
	}{
		"clear":              {nil, 0, "headway: none known to Go's vulnerability database (v0.0.0-20261105)"},
		"no data of Go":      {said{"download": ""}, exitNotChecked, "headway: NOT CHECKED against Go's vulnerability database: no route to host"},
		"no findings":        {said{"-mode": `{"config":{}}`}, exitNotChecked, "headway: NOT CHECKED"},
		"a function of Go":   {said{"-mode": `{"SBOM":{}} {"finding":{"osv":"GO-2","fixed_version":"v2","trace":[{"module":"a.b/c","version":"v1","package":"a.b/c/d","function":"F"}]}}`}, exitFound, "GO-2: a.b/c/d of a.b/c v1, mended in v2"},
		"no data of PyPI":    {said{"pip-audit": ""}, exitNotChecked, requirements + ": NOT CHECKED against PyPI's advisories"},
		"a skipped package":  {said{"pip-audit": `{"dependencies":[{"name":"httpx","skip_reason":"not found on PyPI"}]}`}, exitNotChecked, "not found on PyPI"},
		"a package":          {said{"pip-audit": `{"dependencies":[{"name":"httpx","version":"0","vulns":[{"id":"PYSEC-1"}]},{"name":"idna","skip_reason":"not found on PyPI"}]}`}, exitFound, "PYSEC-1: httpx 0"},
		"no data of npm":     {said{"--json": `{"message":"405 Method Not Allowed"}`}, exitNotChecked, "npm: 405 Method Not Allowed"},
		"a library of pages": {said{"--json": `{"auditReportVersion":2,"vulnerabilities":{"preact":{"severity":"high","range":"<12"}}}`}, exitFound, "preact <12: high"},
	} {
		results := audit(t.Context(), words(c.said).run, "headway")
		var text strings.Builder
		for _, r := range results {
			text.WriteString(r.String() + "\n")
		}
		if got := worst(results); got != c.code || !strings.Contains(text.String(), c.text) {
			t.Errorf("%s: exit %d and\n%swant %d and %q", name, got, text.String(), c.code, c.text)
		}
	}
}

// TestClientPins: what is audited and listed for the Python client are the versions that its tests run with.
func TestClientPins(t *testing.T) {
	pins := func(name string) []string {
		text, err := os.ReadFile("../../../clients/python/requirements/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for line := range strings.Lines(string(text)) {
			if name, version, pinned := strings.Cut(line, "=="); pinned {
				found = append(found, name+"=="+strings.Fields(version)[0])
			}
		}
		return found
	}
	tested := pins("test.txt")
	client := pins("client.txt")
	for _, pin := range client {
		if !slices.Contains(tested, pin) {
			t.Errorf("client.txt has %s, which test.txt has not", pin)
		}
	}
	if len(client) < 8 {
		t.Errorf("client.txt has %d pins: is it read?", len(client))
	}
}
