package licences

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

var rewrite = flag.Bool("rewrite", false, "write components.csv and texts.txt anew")

// permissive are the licences that a component may have: each allows a binary to be passed on with its text.
var permissive = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "FTL", "ISC", "MIT", "OFL-1.1"}

// notices are files that go along with a licence and are none themselves.
var notices = regexp.MustCompile(`(?i)^(notice|patents|license-link)`)

// legal are the names of files with licences and notices.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// part is a component with its files, by their paths as readers know them.
type part struct {
	Component
	files map[string]string // path: text
}

// TestCurrent: both files are what the modules, Go and the pages' libraries say, and all licences are permissive.
func TestCurrent(t *testing.T) {
	parts := append(modules(t), append(libraries(t), standard(t))...)
	for i := range parts {
		p := &parts[i]
		p.Licence = classified(t, p)
	}
	if *rewrite {
		for name, text := range map[string]string{"components.csv": asTable(parts), "texts.txt": asTexts(parts)} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if asTable(parts) != table || asTexts(parts) != texts {
		t.Error("the licences are not those of the linked modules: go test ./internal/licences -run Current -rewrite")
	}
	if got := Components(); len(got) != len(parts) || got[0] != parts[0].Component {
		t.Errorf("the table is read as %d components, want %d", len(got), len(parts))
	}
}

// modules are those that the program is linked from, on the systems that it is built for.
func modules(t *testing.T) []part {
	t.Helper()
	found := map[string]part{}
	for _, system := range []string{"linux", "darwin"} {
		command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,Module", "../../cmd/headway")
		command.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		text, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		for packages := json.NewDecoder(strings.NewReader(string(text))); ; {
			var p struct {
				Dir    string
				Module *struct{ Path, Version, Dir string }
			}
			if err := packages.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.Module == nil || p.Module.Version == "" {
				continue
			}
			m, has := found[p.Module.Path]
			if !has {
				m = part{Component{Module, p.Module.Path, p.Module.Version, ""}, map[string]string{}}
				found[m.Name] = m
			}
			for dir := p.Dir; ; dir = filepath.Dir(dir) {
				beside(t, m, p.Module.Dir, dir)
				if dir == p.Module.Dir {
					break
				}
			}
		}
	}
	return slices.Collect(func(yield func(part) bool) {
		for _, name := range slices.Sorted(maps.Keys(found)) {
			yield(found[name])
		}
	})
}

// beside adds the legal files of one folder.
func beside(t *testing.T, p part, root, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() && legal.MatchString(entry.Name()) && filepath.Ext(entry.Name()) != ".go" {
			add(t, p, root, filepath.Join(dir, entry.Name()))
		}
	}
}

func add(t *testing.T, p part, root, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name, err := filepath.Rel(root, file)
	if err != nil {
		t.Fatal(err)
	}
	p.files[p.Name+"/"+filepath.ToSlash(name)] = strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
}

// libraries are those that the pages' script fetches.
func libraries(t *testing.T) (all []part) {
	t.Helper()
	const dashboard = "../../explain/dashboard/"
	script, err := os.ReadFile(dashboard + "vendor.sh")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"preact": "preact", "htm": "htm", "@preact/signals": "signals", "@preact/signals-core": "signals", "uplot": "uPlot"}
	for _, found := range regexp.MustCompile(`(?m)^fetch (\S+) (\S+)$`).FindAllStringSubmatch(string(script), -1) {
		p := part{Component{Library, found[1], found[2], ""}, map[string]string{}}
		text, err := os.ReadFile(dashboard + "assets/vendor/" + files[p.Name] + ".LICENSE")
		if err != nil {
			t.Fatalf("%s %s: %v", p.Name, p.Version, err)
		}
		p.files[p.Name+"/LICENSE"] = strings.TrimSpace(string(text))
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("vendor.sh fetches nothing: does this test read it?")
	}
	return all
}

// standard is Go's own library. Some systems package its licence elsewhere than in GOROOT.
func standard(t *testing.T) part {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	p := part{Component{Standard, "Go", "", ""}, map[string]string{}}
	at := filepath.Join(strings.TrimSpace(string(root)), "LICENSE")
	if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s has no LICENSE (%s): the licences are compared where Go's own distribution is installed", filepath.Dir(at), runtime.Version())
	}
	add(t, p, filepath.Dir(at), at)
	return p
}

// classified returns a component's licences as an SPDX expression.
func classified(t *testing.T, p *part) string {
	t.Helper()
	found := map[string]bool{}
	for name, text := range p.files {
		if notices.MatchString(filepath.Base(name)) {
			continue
		}
		known := 0
		for _, match := range licensecheck.Scan([]byte(text)).Match {
			if !match.IsURL {
				found[match.ID], known = true, known+1
			}
		}
		if known == 0 {
			t.Errorf("%s: a licence that is not known", name)
		}
	}
	all := slices.Sorted(maps.Keys(found))
	if len(all) == 0 {
		t.Errorf("%s %s has no licence", p.Name, p.Version)
	}
	for _, licence := range all {
		if !slices.Contains(permissive, licence) {
			t.Errorf("%s %s has the licence %s, which is not among the permissive ones", p.Name, p.Version, licence)
		}
	}
	return strings.Join(all, " AND ")
}

func asTable(parts []part) string {
	var b strings.Builder
	b.WriteString("kind,name,version,licence\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "%s,%s,%s,%s\n", p.Kind, p.Name, p.Version, p.Licence)
	}
	return b.String()
}

// asTexts prints every text once, behind the files that have it.
func asTexts(parts []part) string {
	type entry struct {
		files []string
		text  string
	}
	var entries []*entry
	seen := map[string]*entry{}
	for _, p := range parts {
		for _, name := range slices.Sorted(maps.Keys(p.files)) {
			key := strings.Join(strings.Fields(p.files[name]), " ")
			if seen[key] == nil {
				seen[key] = &entry{text: p.files[name]}
				entries = append(entries, seen[key])
			}
			seen[key].files = append(seen[key].files, name)
		}
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s\n%s\n\n%s\n\n", strings.Repeat("=", 80), strings.Join(e.files, "\n"), e.text)
	}
	return b.String()
}

// TestClassifierRefuses: a licence that asks for more than its text is not passed.
func TestClassifierRefuses(t *testing.T) {
	text := "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by " +
		"the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for _, match := range licensecheck.Scan([]byte(text)).Match {
		if slices.Contains(permissive, match.ID) {
			t.Errorf("the GPL counts as %s", match.ID)
		}
	}
	if len(licensecheck.Scan([]byte(text)).Match) == 0 {
		t.Error("the GPL is not known")
	}
}
