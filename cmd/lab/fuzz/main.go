// Command fuzz runs every fuzz target of this module, one after another, each for a time.
//
// An input that fails stays in testdata/fuzz beside its target, where the package's tests run it from then on.
// Commit it with the change that mends the defect. The exit status is 1 if a target failed.
//
// Usage, from the root of the repository: go run ./cmd/lab/fuzz [-time 30s] [-run REGEXP]
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	each := flag.Duration("time", 30*time.Second, "for how long each target is run")
	which := flag.String("run", "", "a regular expression: only targets whose package and name it matches, as in \"loop/trace.FuzzLine\"")
	flag.Parse()
	if err := run(*each, *which); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz target and the folder of its package, which begins with "./".
type target struct{ folder, name string }

func (t target) String() string { return strings.TrimPrefix(t.folder, "./") + "." + t.name }

func run(each time.Duration, which string) error {
	wanted, err := regexp.Compile(which)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	targets, err := list()
	if err != nil {
		return err
	}
	targets = slices.DeleteFunc(targets, func(t target) bool { return !wanted.MatchString(t.String()) })
	if len(targets) == 0 {
		return fmt.Errorf("no target matches -run %q", which)
	}
	var failed []string
	for i, t := range targets {
		fmt.Printf("%d of %d: %s for %s\n", i+1, len(targets), t, each)
		if err := fuzz(t, each); err != nil {
			failed = append(failed, fmt.Sprintf("\t%s: inputs that fail are in %s", t, filepath.Join(t.folder, "testdata", "fuzz", t.name)))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d targets failed:\n%s", len(failed), len(targets), strings.Join(failed, "\n"))
	}
	fmt.Printf("%d targets ran for %s each, and nothing failed\n", len(targets), each)
	return nil
}

// fuzz runs one target, which is all that go test can run at a time.
func fuzz(t target, each time.Duration) error {
	command := exec.Command("go", "test", "-vet=off", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), t.folder)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

// list is every target by package and name, as go test lists them. Packages whose tests have none are not built.
func list() ([]target, error) {
	folders, err := withTargets(".")
	if err != nil {
		return nil, err
	}
	if len(folders) == 0 {
		return nil, errors.New("no fuzz targets below the working directory: run this from the root of the repository")
	}
	var targets []target
	for _, folder := range folders {
		out, err := exec.Command("go", "test", "-vet=off", "-list", "^Fuzz", folder).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("go test -list ^Fuzz %s: %w\n%s", folder, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if name := strings.TrimSpace(line); strings.HasPrefix(name, "Fuzz") {
				targets = append(targets, target{folder, name})
			}
		}
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.String(), b.String()) })
	return targets, nil
}

// withTargets are the folders with a test file that declares a fuzz target.
func withTargets(root string) ([]string, error) {
	var folders []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("\nfunc Fuzz")) {
			folders = append(folders, "./"+filepath.ToSlash(filepath.Dir(path)))
		}
		return nil
	})
	slices.Sort(folders)
	return slices.Compact(folders), err
}
