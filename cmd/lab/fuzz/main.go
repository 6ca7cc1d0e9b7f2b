// Command fuzz runs every fuzz target of this module, one after another, each for a time.
//
// An input that fails stays in testdata/fuzz beside its target, where the package's tests run it from then on.
// Commit it with the change that mends the defect. The exit status is 1 if a target failed.
//
// With -keep N, up to N inputs that opened new paths are kept there as well, as seeds for everybody.
// Go has them in its build cache alone. The newest are the hardest to find; those above 1 kB are left out.
//
// Usage, from the root of the repository: go run ./cmd/lab/fuzz [-time 30s] [-run REGEXP] [-keep N]
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
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
	kept := flag.Int("keep", 0, "how many inputs that opened new paths are kept of each target, beside those in testdata/fuzz")
	flag.Parse()
	if err := run(*each, *which, *kept); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz target and the folder of its package, which begins with "./".
type target struct{ folder, name string }

func (t target) String() string { return strings.TrimPrefix(t.folder, "./") + "." + t.name }

func run(each time.Duration, which string, kept int) error {
	wanted, err := regexp.Compile(which)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	targets, err := list(wanted)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no target below the working directory matches -run %q: run this from the root of the repository", which)
	}
	var failed []string
	for i, t := range targets {
		fmt.Printf("%d of %d: %s for %s\n", i+1, len(targets), t, each)
		if err := fuzz(t, each); err != nil {
			failed = append(failed, fmt.Sprintf("\t%s: inputs that fail are in %s", t, filepath.Join(t.folder, "testdata", "fuzz", t.name)))
			continue
		}
		if err := keep(t, kept); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d targets failed:\n%s", len(failed), len(targets), strings.Join(failed, "\n"))
	}
	fmt.Printf("%d targets ran for %s each, and nothing failed\n", len(targets), each)
	return nil
}

// minimizeTime is how long an input is made smaller. By default it is a minute, which takes the time of the search.
const minimizeTime = "1s"

// fuzz runs one target, which is all that go test can run at a time.
func fuzz(t target, each time.Duration) error {
	var said bytes.Buffer
	command := exec.Command("go", "test", "-vet=off", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), "-fuzzminimizetime", minimizeTime, t.folder)
	command.Stdout, command.Stderr = io.MultiWriter(os.Stdout, &said), os.Stderr
	err := command.Run()
	if err != nil && outOfTime(said.String(), t.name) {
		fmt.Printf("%s: its time ended in the middle of an input, which go test reports as a failure; none failed\n", t)
		return nil
	}
	return err
}

// outOfTime reports whether all that failed in an output of go test is that -fuzztime ended while an input was run. A
// target that fails for an input says more: the input's file, or the seed that it is.
func outOfTime(said, name string) bool {
	ended := regexp.MustCompile(`(?m)^--- FAIL: ` + name + ` \([0-9.]+s\)\n    context deadline exceeded\nFAIL$`)
	return ended.MatchString(said) && strings.Count(said, "--- FAIL: ") == 1 && !strings.Contains(said, "Failing input written to")
}

// list is every wanted target by package and name, as go test lists them. Packages whose tests have none are not built.
func list(wanted *regexp.Regexp) ([]target, error) {
	folders, err := withTargets(".", wanted)
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, folder := range folders {
		out, err := exec.Command("go", "test", "-vet=off", "-list", "^Fuzz", folder).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("go test -list ^Fuzz %s: %w\n%s", folder, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if t := (target{folder, strings.TrimSpace(line)}); strings.HasPrefix(t.name, "Fuzz") && wanted.MatchString(t.String()) {
				targets = append(targets, t)
			}
		}
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.String(), b.String()) })
	return targets, nil
}

// declared is the beginning of a fuzz target.
var declared = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// withTargets are the folders with a test file that declares a wanted fuzz target.
func withTargets(root string, wanted *regexp.Regexp) ([]string, error) {
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
		folder := "./" + filepath.ToSlash(filepath.Dir(path))
		for _, found := range declared.FindAllSubmatch(text, -1) {
			if wanted.MatchString(target{folder, string(found[1])}.String()) {
				folders = append(folders, folder)
			}
		}
		return nil
	})
	slices.Sort(folders)
	return slices.Compact(folders), err
}

// keep copies the newest small inputs of a target from Go's cache to its folder.
func keep(t target, most int) error {
	if most == 0 {
		return nil
	}
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}", t.folder).Output()
	if err != nil {
		return fmt.Errorf("go list %s: %w", t.folder, err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	from := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", filepath.FromSlash(strings.TrimSpace(string(out))), t.name)
	return copyNewest(from, filepath.Join(t.folder, "testdata", "fuzz", t.name), most)
}

// keptBytesMax bounds an input that is kept, so that all of them together stay below half a megabyte.
const keptBytesMax = 1000

// copyNewest copies up to so many of a folder's newest small files to another folder. There are none where nothing was found.
func copyNewest(from, to string, most int) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var small []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.Size() <= keptBytesMax {
			small = append(small, info)
		}
	}
	slices.SortFunc(small, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range small[:min(most, len(small))] {
		text, err := os.ReadFile(filepath.Join(from, info.Name()))
		if err == nil {
			err = os.MkdirAll(to, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, info.Name()), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
