package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// files are what is to be read.
type files struct {
	sources []Source
	bytes   int64
}

func (f *files) paths() []string {
	var paths []string
	for _, source := range f.sources {
		paths = append(paths, source.Path())
	}
	return paths
}

// kind is a kind of file that any framework may leave.
type kind struct {
	// what it is, in words.
	what string
	// fits decides by a file's name and its first bytes.
	fits func(file string, head []byte) bool
	// open makes its source; run is Options.Run.
	open func(file, run string) Source
}

// kinds of files, the first that fits wins.
var kinds = []kind{
	{"TensorBoard's event file", fitsEvents, openEvents},
	{"W&B's run file", fitsRunFile, openRunFile},
	{"a run's config", fitsConfig, openConfig},
	{"a run's config in TOML", fitsTOML, openTOML},
	{"JSON lines", fitsLines, openLines},
	{"CSV with a header", fitsColumns, openColumns},
	{"console text", fitsConsole, openConsole},
}

// headBytes is how much of a file is looked at to find its kind.
const headBytes = 64 << 10

// filesMax is how many files of directories are read.
const filesMax = 100_000

// expand turns paths into sources: a directory into the files in it that are of a kind.
func expand(ctx context.Context, paths []string, run string) (*files, error) {
	if len(paths) == 0 {
		return nil, errors.New("no file was named: give a log, or the directory that holds it")
	}
	found := &files{}
	for _, name := range paths {
		if err := found.expand(ctx, filepath.Clean(name), run); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (f *files) expand(ctx context.Context, name, run string) error {
	about, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("a log was expected: %w", err)
	}
	if !about.IsDir() {
		source, err := open(name, run)
		if err != nil {
			return err
		}
		if source == nil {
			return fmt.Errorf("%s is no log of a known kind (known: %s)", name, kindsKnown())
		}
		f.add(source, about.Size())
		return nil
	}
	inside, err := listed(ctx, name)
	if err != nil {
		return err
	}
	before := len(f.sources)
	for _, file := range inside {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		source, err := open(file.name, run)
		if err != nil {
			return err
		}
		if source != nil {
			f.add(source, file.size)
		}
	}
	if len(f.sources) == before {
		return fmt.Errorf("%s has no log of a known kind among its %d files (known: %s)", name, len(inside), kindsKnown())
	}
	return nil
}

func (f *files) add(source Source, size int64) {
	f.sources = append(f.sources, source)
	f.bytes += size
}

// ofWandb is an error if no file is of a kind that W&B writes or exports.
func (f *files) ofWandb() error {
	for _, source := range f.sources {
		switch source.(type) {
		case runFile, columns, jsonLines:
			return nil
		}
	}
	return fmt.Errorf("%s: --from %s expects a run file (run-ID.wandb), a CSV export or a history of JSON lines, and none is there: leave --from out",
		f.sources[0].Path(), trackerWandb)
}

func kindsKnown() string {
	var words []string
	for _, k := range kinds {
		words = append(words, k.what)
	}
	return strings.Join(words, ", ")
}

// inDirectory is a file found in a directory.
type inDirectory struct {
	name string
	size int64
}

// listed returns the files under a directory, in the order of their names with numbers by value,
// so that later steps and later event files come later. A directory that was named by a link to it, such as W&B's
// latest-run, is the one that the link leads to; links inside are not followed, as what they lead to may be
// inside as well.
func listed(ctx context.Context, directory string) ([]inDirectory, error) {
	directory, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return nil, err
	}
	var inside []inDirectory
	seen := 0
	err = filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		seen++
		if seen > filesMax {
			return fmt.Errorf("more than %d files: name the log's directory", filesMax)
		}
		about, err := entry.Info()
		if err != nil {
			return err
		}
		inside = append(inside, inDirectory{name, about.Size()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", directory, err)
	}
	sort.Slice(inside, func(i, j int) bool { return natural(inside[i].name, inside[j].name) < 0 })
	return inside, nil
}

// natural compares names, runs of digits by their value.
func natural(a, b string) int {
	for a != "" && b != "" {
		digitsA, digitsB := digits(a), digits(b)
		if digitsA != "" && digitsB != "" {
			x, y := strings.TrimLeft(digitsA, "0"), strings.TrimLeft(digitsB, "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[len(digitsA):], b[len(digitsB):]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) string {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	return s[:end]
}

// open makes a file's source, nil if it is of no known kind.
func open(file, run string) (Source, error) {
	for _, f := range frameworks {
		for _, own := range f.Files {
			if matches(own.Match, file) {
				return ownSource{file, f, own}, nil
			}
		}
	}
	head, err := beginning(file)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.fits(file, head) })
	if i < 0 {
		return nil, nil
	}
	return kinds[i].open(file, run), nil
}

func beginning(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return head[:n], nil
}

// matches reports whether a file's last elements are what a pattern says.
func matches(pattern, file string) bool {
	elements := strings.Split(filepath.ToSlash(file), "/")
	n := strings.Count(pattern, "/") + 1
	if len(elements) < n {
		return false
	}
	ok, err := path.Match(pattern, strings.Join(elements[len(elements)-n:], "/"))
	return err == nil && ok
}

// ownSource is a file that only one framework writes.
type ownSource struct {
	path      string
	framework *Framework
	own       OwnFile
}

func (s ownSource) Path() string { return s.path }

func (s ownSource) Read(ctx context.Context, taker Taker) error {
	return s.own.Read(ctx, s.path, taker)
}
