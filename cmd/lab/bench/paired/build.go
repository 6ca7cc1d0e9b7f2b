// Package paired measures two commits against each other. It builds the program of both and has them
// run in turn as old, new, new, old. It gives the ratio of the measurements with its interval.
package paired

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Side is one of the two programs that are compared.
type Side struct {
	// Name says which commit the program is of, and whether files differ from it.
	Name string
	// Source is the folder that the sources are in, so that each program reads examples of its own commit.
	Source string
	// Program is the path of the built headway.
	Program string
}

// Sides are the program of a commit, Old, and that of the working tree, New.
type Sides struct{ Old, New Side }

// build is how both sides are built. Without paths and stamps, equal sources make equal programs.
var build = []string{"build", "-trimpath", "-buildvcs=false"}

// Build builds headway of a commit and of the working tree, which is the current folder. The sources of the commit
// are in a worktree of their own, which remove takes away with both programs. A commit that git does not
// know is an error.
func Build(commit string) (sides Sides, remove func(), err error) {
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return Sides{}, nil, err
	}
	hash, err := git("rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return Sides{}, nil, fmt.Errorf("-against %s: git knows no such commit in %s: give a hash, a branch or a tag", commit, top)
	}
	head, err := described()
	if err != nil {
		return Sides{}, nil, err
	}
	dir, err := os.MkdirTemp("", "headway-paired-")
	if err != nil {
		return Sides{}, nil, err
	}
	source := filepath.Join(dir, "source")
	remove = func() {
		_, _ = git("-C", top, "worktree", "remove", "--force", source)
		_ = os.RemoveAll(dir)
	}
	sides = Sides{
		Old: Side{Name: short(hash), Source: source, Program: filepath.Join(dir, "old")},
		New: Side{Name: head, Source: top, Program: filepath.Join(dir, "new")},
	}
	_, err = git("worktree", "add", "--quiet", "--detach", source, hash)
	for _, side := range []Side{sides.Old, sides.New} {
		if err == nil {
			err = side.build()
		}
	}
	if err != nil {
		remove()
		return Sides{}, nil, err
	}
	return sides, remove, nil
}

func (s Side) build() error {
	cmd := exec.Command("go", append(build, "-o", s.Program, "./cmd/headway")...)
	cmd.Dir = s.Source
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building headway of %s: %w\n%s", s.Name, err, text)
	}
	return nil
}

// described names the commit that is checked out, and says so if tracked files differ from it or if there are files
// that git neither tracks nor ignores.
func described() (string, error) {
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changes, err := git("status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changes == "" {
		return short(head), nil
	}
	return fmt.Sprintf("%s with %d files changed and not committed", short(head), strings.Count(changes, "\n")+1), nil
}

func short(hash string) string { return hash[:min(12, len(hash))] }

// git runs git in the current folder, and returns what it prints.
func git(arguments ...string) (string, error) {
	text, err := exec.Command("git", arguments...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w: %s", arguments[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimRight(string(text), "\n"), err
}
