package taskset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MistakesMax is how many mistakes are kept in words; the rest are counted.
const MistakesMax = 50

// Mistake is one thing that is wrong with the files of a set.
type Mistake struct {
	// File as it was named, Line from 1; of Parquet the row. Line is 0 for a mistake of a whole file
	// and File is empty for one of the set.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Text says what is wrong, what was expected and what to do.
	Text string `json:"text"`
}

func (m Mistake) String() string {
	switch {
	case m.File == "":
		return m.Text
	case m.Line == 0:
		return m.File + ": " + m.Text
	}
	return fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text)
}

// Mistakes is the error of a set that cannot be played: all that is wrong with it, not only the first.
type Mistakes struct {
	// List has the first MistakesMax, by file and line; More counts the rest.
	List []Mistake
	More int
}

func (m *Mistakes) Error() string {
	var b strings.Builder
	count := len(m.List) + m.More
	if count == 1 {
		b.WriteString("taskset: one mistake in the tasks:")
	} else {
		fmt.Fprintf(&b, "taskset: %d mistakes in the tasks:", count)
	}
	for _, one := range m.List {
		b.WriteString("\n  " + one.String())
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", m.More)
	}
	return b.String()
}

// found collects mistakes while files are read.
type found struct {
	list  []placed
	count int
	// missing are rows that lack a field, by part. They are kept apart: where no row has it, that is
	// one mistake.
	missing [partCount]struct {
		list  []placed
		count int
	}
}

// placed is a mistake with its file's place in the set.
type placed struct {
	file int
	Mistake
}

func (f *found) add(file int, m Mistake) {
	f.count++
	if len(f.list) < MistakesMax {
		f.list = append(f.list, placed{file, m})
	}
}

func (f *found) miss(part, file int, m Mistake) {
	of := &f.missing[part]
	of.count++
	if len(of.list) < MistakesMax {
		of.list = append(of.list, placed{file, m})
	}
}

// err is nil where there is no mistake.
func (f *found) err() error {
	all, count := slices.Clone(f.list), f.count
	for i := range f.missing {
		all, count = append(all, f.missing[i].list...), count+f.missing[i].count
	}
	if count == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.Line, b.Line)) })
	m := &Mistakes{}
	for _, one := range all[:min(len(all), MistakesMax)] {
		m.List = append(m.List, one.Mistake)
	}
	m.More = count - len(m.List)
	return m
}
