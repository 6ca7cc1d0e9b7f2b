// Package doctored lists builds of the program with one bug each. A check of the whole system that does not find them
// is too weak. Every bug is a patch of production code beside this file. Its header says which promise breaks, how a
// client could see that, and which fault shows it.
package doctored

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// Build is a program with one bug.
type Build struct {
	// Name is that of the patch's file without its ending: a number, and words for the bug.
	Name string
	// Title says in a line what the bug is.
	Title string
	// Promise is the promise that it breaks, Breaks how a client could see that. Needs is the fault or the
	// interleaving that shows it.
	Promise, Breaks, Needs string
	// Files are the paths of the files that it changes, from the root of the repository.
	Files []string
	// Patch is the unified diff from the root of the repository, without the header.
	Patch string
}

// All returns every build in the order of their names.
func All() ([]Build, error) {
	entries, err := patches.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("doctored: %w", err)
	}
	var out []Build
	for _, entry := range entries {
		text, err := patches.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("doctored: %w", err)
		}
		b, err := parse(strings.TrimSuffix(entry.Name(), ".patch"), string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// parse reads a patch with its header: the title in the first line, then paragraphs that begin with their names.
func parse(name, text string) (Build, error) {
	const begins = "diff --git "
	head, diff, ok := strings.Cut(text, "\n"+begins)
	if !ok {
		return Build{}, fmt.Errorf("doctored: %s has no line that begins with %q after its header", name, begins)
	}
	title, rest, _ := strings.Cut(head, "\n")
	b := Build{Name: name, Title: title, Patch: begins + diff}
	into := map[string]*string{"Promise": &b.Promise, "Breaks": &b.Breaks, "Needs": &b.Needs}
	var field *string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if label, words, ok := strings.Cut(line, ": "); ok && into[label] != nil {
			field, line = into[label], words
		}
		switch {
		case line == "":
		case field == nil:
			return Build{}, fmt.Errorf("doctored: %s has the line %q before Promise, Breaks and Needs", name, line)
		default:
			*field = strings.TrimSpace(*field + " " + line)
		}
	}
	for line := range strings.Lines(b.Patch) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/"); ok {
			b.Files = append(b.Files, path)
		}
	}
	for what, value := range map[string]string{"title": b.Title, "Promise": b.Promise, "Breaks": b.Breaks, "Needs": b.Needs, "file": strings.Join(b.Files, " ")} {
		if value == "" {
			return Build{}, fmt.Errorf("doctored: %s has no %s", name, what)
		}
	}
	return b, nil
}

// Overlay is the document of go build -overlay: the files that take the place of others, by absolute paths.
type Overlay struct {
	Replace map[string]string
}

// Overlay copies the files that a build changes from the repository at root to an empty folder, and applies the patch
// there. It returns the document by which go build takes them instead. It needs the program git.
func (b Build) Overlay(root, folder string) (Overlay, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Overlay{}, fmt.Errorf("doctored: %w", err)
	}
	if folder, err = filepath.Abs(folder); err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return Overlay{}, fmt.Errorf("doctored: %w", err)
	}
	o := Overlay{Replace: make(map[string]string, len(b.Files))}
	for _, path := range b.Files {
		from, to := filepath.Join(root, path), filepath.Join(folder, path)
		if err := copyFile(from, to); err != nil {
			return Overlay{}, fmt.Errorf("doctored: %s: %w", b.Name, err)
		}
		o.Replace[from] = to
	}
	return o, b.apply(folder)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s is there already, want an empty folder", to)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// apply patches the copies in a folder.
func (b Build) apply(folder string) error {
	git := exec.Command("git", "apply", "-p1", "-")
	git.Dir, git.Stdin = folder, strings.NewReader(b.Patch)
	// Where git finds a repository around the folder, it leaves out every path in silence.
	git.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	git.Env = append(git.Env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	var said bytes.Buffer
	git.Stdout, git.Stderr = &said, &said
	if err := git.Run(); err != nil {
		return fmt.Errorf("doctored: %s does not apply: %w: %s; write it anew for the code as it is", b.Name, err, strings.TrimSpace(said.String()))
	}
	return nil
}
