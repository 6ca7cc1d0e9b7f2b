package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/licences"
)

// The programs and data that an audit asks. The database is a module too, so that it comes from where modules do.
const (
	govulncheck  = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	database     = "golang.org/x/vulndb@latest"
	requirements = "clients/python/requirements/client.txt"
)

// result is the outcome of one part of an audit.
type result struct {
	part   string
	data   string   // which data was asked
	found  []string // vulnerabilities
	failed error    // why the part was not checked
}

func (r result) String() string {
	text := fmt.Sprintf("%s: none known to %s", r.part, r.data)
	if len(r.found) > 0 {
		text = fmt.Sprintf("%s: %d vulnerabilities in %s:\n  %s", r.part, len(r.found), r.data, strings.Join(r.found, "\n  "))
	}
	if r.failed != nil {
		refused := fmt.Sprintf("%s: NOT CHECKED against %s: %v", r.part, r.data, r.failed)
		if len(r.found) == 0 {
			return refused
		}
		text += "\n" + refused
	}
	return text
}

// worst is the exit status of an audit.
func worst(results []result) int {
	code := 0
	for _, r := range results {
		if len(r.found) > 0 {
			return exitFound
		}
		if r.failed != nil {
			code = exitNotChecked
		}
	}
	return code
}

// runner runs a program in a folder and returns what it printed. An audit's tests have their own.
type runner func(ctx context.Context, dir string, argv ...string) ([]byte, error)

// run runs a program; an error quotes the end of what it said.
func run(ctx context.Context, dir string, argv ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Dir = dir
	out, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
		err = fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, lines[len(lines)-1])
	}
	return out, err
}

func audit(ctx context.Context, run runner, binary string) []result {
	return []result{auditBinary(ctx, run, binary), auditClient(ctx, run), auditPages(ctx, run)}
}

// auditBinary has govulncheck compare the functions that the binary holds with Go's database.
func auditBinary(ctx context.Context, run runner, binary string) result {
	r := result{part: binary, data: "Go's vulnerability database"}
	var module struct{ Version, Dir string }
	text, err := run(ctx, "", "go", "mod", "download", "-json", database)
	if err == nil {
		err = json.Unmarshal(text, &module)
	}
	if err != nil {
		r.failed = err
		return r
	}
	r.data += " (" + module.Version + ")"
	text, err = run(ctx, "", "go", "run", govulncheck, "-format", "json", "-mode", "binary", "-db", "file://"+module.Dir+"/data/osv", binary)
	if err != nil {
		r.failed = err
		return r
	}
	r.found, r.failed = findings(text)
	return r
}

// findings are the vulnerabilities of which the binary holds a function.
func findings(text []byte) ([]string, error) {
	found := map[string]bool{}
	checked := false
	for messages := json.NewDecoder(strings.NewReader(string(text))); ; {
		var m struct {
			SBOM    *json.RawMessage `json:"SBOM"`
			Finding *struct {
				OSV   string `json:"osv"`
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Package, Function string }
			} `json:"finding"`
		}
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		checked = checked || m.SBOM != nil
		if f := m.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			at := f.Trace[0]
			found[fmt.Sprintf("%s: %s of %s %s, mended in %s", f.OSV, at.Package, at.Module, at.Version, f.Fixed)] = true
		}
	}
	if !checked {
		return nil, errors.New("govulncheck did not say which modules it looked at")
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// auditClient has pip-audit ask PyPI. Without --strict it passes over a package that PyPI does not know.
func auditClient(ctx context.Context, run runner) result {
	r := result{part: requirements, data: "PyPI's advisories"}
	text, err := run(ctx, "", "pip-audit", "--strict", "--disable-pip", "--require-hashes", "--format", "json", "-r", requirements)
	var document struct {
		Dependencies []struct {
			Name, Version string
			Skip          string `json:"skip_reason"`
			Vulns         []struct{ ID string }
		}
	}
	if json.Unmarshal(text, &document) != nil || len(document.Dependencies) == 0 {
		r.failed = errors.Join(err, errors.New("pip-audit compared nothing"))
		return r
	}
	for _, d := range document.Dependencies {
		if d.Skip != "" {
			r.failed = errors.New(d.Skip)
		}
		for _, v := range d.Vulns {
			r.found = append(r.found, fmt.Sprintf("%s: %s %s", v.ID, d.Name, d.Version))
		}
	}
	return r
}

// auditPages has npm ask its registry about the libraries in the pages.
func auditPages(ctx context.Context, run runner) result {
	r := result{part: "the pages' libraries", data: "npm's advisories"}
	dependencies := map[string]string{}
	for _, c := range licences.Components() {
		if c.Kind == licences.Library {
			dependencies[c.Name] = c.Version
		}
	}
	dir, err := os.MkdirTemp("", "headway-audit-")
	if err != nil {
		r.failed = err
		return r
	}
	defer os.RemoveAll(dir)
	text, err := json.Marshal(map[string]any{"name": "pages", "version": "0.0.0", "private": true, "dependencies": dependencies})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600)
	}
	if err == nil {
		_, err = run(ctx, dir, "npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--silent")
	}
	if err != nil {
		r.failed = err
		return r
	}
	text, err = run(ctx, dir, "npm", "audit", "--json")
	var document struct {
		Report  int                                         `json:"auditReportVersion"`
		Message string                                      `json:"message"`
		Vulns   map[string]struct{ Severity, Range string } `json:"vulnerabilities"`
	}
	if json.Unmarshal(text, &document) != nil || document.Report == 0 {
		r.failed = errors.Join(err, errors.New("npm: "+document.Message))
		return r
	}
	for name, v := range document.Vulns {
		r.found = append(r.found, fmt.Sprintf("%s %s: %s", name, v.Range, v.Severity))
	}
	slices.Sort(r.found)
	return r
}
