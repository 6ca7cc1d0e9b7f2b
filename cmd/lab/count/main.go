// Command count prints how many lines of code each folder holds, as product, test and lab.
// Blank lines, comments and generated files do not count.
//
// With -against COMMIT it prints that commit's lines beside those of the working tree.
// Each old file counts in the folder and class that it has today: git says where it was moved to.
// A file that was moved is therefore not removed.
//
// Usage, from the root of the repository: go run ./cmd/lab/count [-against COMMIT]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	against := flag.String("against", "", "a commit to compare the working tree with")
	flag.Parse()
	if err := run(*against); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

// cell is one figure of the table: the lines of a language and class below a folder.
type cell struct {
	language, folder, class string
}

func run(against string) error {
	now, err := workingTree()
	if err != nil {
		return err
	}
	if against == "" {
		write(now, nil)
		return nil
	}
	before, err := commit(against)
	if err != nil {
		return err
	}
	write(now, before)
	return nil
}

// workingTree counts the files that git tracks, as they are on disk.
func workingTree() (map[cell]int, error) {
	names, err := git("ls-files")
	if err != nil {
		return nil, err
	}
	counts := map[cell]int{}
	for _, name := range lines(names) {
		if language(name) == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err != nil {
			return nil, err
		}
		add(counts, name, text)
	}
	return counts, nil
}

// commit counts the files of a commit under the names that they have today.
func commit(name string) (map[cell]int, error) {
	moved, err := moves(name)
	if err != nil {
		return nil, err
	}
	tree, err := git("ls-tree", "-r", "--name-only", name)
	if err != nil {
		return nil, err
	}
	counts := map[cell]int{}
	for _, old := range lines(tree) {
		if language(old) == "" {
			continue
		}
		text, err := git("show", name+":"+old)
		if err != nil {
			return nil, err
		}
		today := old
		if to, ok := moved[old]; ok {
			today = to
		}
		add(counts, today, text)
	}
	return counts, nil
}

// moves follows every renaming since a commit, one commit after the other: a file that was moved
// and then rewritten or removed still has its last name.
func moves(since string) (map[string]string, error) {
	log, err := git("log", "--reverse", "--find-renames=40%", "-l0", "--diff-filter=R", "--name-status", "--format=", since+"..HEAD")
	if err != nil {
		return nil, err
	}
	last, first := map[string]string{}, map[string]string{} // by the oldest name, by the newest name
	for _, line := range lines(log) {
		fields := strings.Split(line, "\t")
		if len(fields) != 3 {
			continue
		}
		from, to := fields[1], fields[2]
		oldest, ok := first[from]
		if !ok {
			oldest = from
		}
		delete(first, from)
		first[to], last[oldest] = oldest, to
	}
	return last, nil
}

// add counts a file in the folder and class of its name today.
func add(counts map[cell]int, name string, text []byte) {
	language := language(name)
	if n := count(language, text); n > 0 {
		counts[cell{language, folder(name), class(name)}] += n
	}
}

// language is "" for a file that is not counted.
func language(name string) string {
	switch path.Ext(name) {
	case ".go":
		return "Go"
	case ".js", ".css", ".ts":
		return "pages"
	case ".py":
		return "Python"
	}
	return ""
}

// class is product, test or lab. A folder whose name ends in test holds what tests alone import, as do lint and quoted.
func class(name string) string {
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		if part == "testdata" || part == "tests" || part == "browser" || part == "golden" || strings.HasSuffix(part, "test") {
			return "test"
		}
	}
	switch {
	case strings.HasSuffix(name, "_test.go"), parts[0] == "internal" && (parts[1] == "lint" || parts[1] == "quoted"):
		return "test"
	case strings.HasPrefix(name, "cmd/lab/"), parts[0] == "bench", parts[0] == "study", parts[0] == "examples":
		return "lab"
	}
	return "product"
}

// folder is the row of the table: the folder at the root, and of cmd and internal the one below it.
func folder(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) > 2 && (parts[0] == "cmd" || parts[0] == "internal") {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func write(now, before map[cell]int) {
	for _, language := range []string{"Go", "pages", "Python"} {
		folders := map[string]bool{}
		for c := range now {
			if c.language == language {
				folders[c.folder] = true
			}
		}
		for c := range before {
			if c.language == language {
				folders[c.folder] = true
			}
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "%s\tproduct\ttest\tlab\t", language)
		if before != nil {
			fmt.Fprint(w, "product before\tdifference\t test before\tdifference\tlab before\tdifference\t")
		}
		fmt.Fprintln(w)
		for _, folder := range slices.Sorted(maps.Keys(folders)) {
			row(w, folder, before != nil, func(counts map[cell]int, class string) int {
				return counts[cell{language, folder, class}]
			}, now, before)
		}
		row(w, "all", before != nil, func(counts map[cell]int, class string) int {
			sum := 0
			for c, n := range counts {
				if c.language == language && c.class == class {
					sum += n
				}
			}
			return sum
		}, now, before)
		w.Flush()
		fmt.Println()
	}
}

func row(w *tabwriter.Writer, name string, compared bool, of func(map[cell]int, string) int, now, before map[cell]int) {
	classes := []string{"product", "test", "lab"}
	fmt.Fprintf(w, "%s\t", name)
	for _, class := range classes {
		fmt.Fprintf(w, "%d\t", of(now, class))
	}
	if compared {
		for _, class := range classes {
			was := of(before, class)
			difference := fmt.Sprintf("%+d", of(now, class)-was)
			if name == "all" && was > 0 {
				difference += fmt.Sprintf(" (%+.1f %%)", 100*float64(of(now, class)-was)/float64(was))
			}
			fmt.Fprintf(w, "%d\t%s\t", was, difference)
		}
	}
	fmt.Fprintln(w)
}

func git(args ...string) ([]byte, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

func lines(text []byte) []string {
	return strings.FieldsFunc(string(bytes.TrimSpace(text)), func(r rune) bool { return r == '\n' })
}
