package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/weights"
)

// weightsShowCmd prints a version.
type weightsShowCmd struct {
	weightsPlace
	Version string `arg:"" help:"A version's number, or latest."`
}

// Run prints the manifest, and what was derived.
func (c *weightsShowCmd) Run(a *app.Process) error {
	s, dir, err := openWeights(c.Of)
	if err != nil {
		return err
	}
	v, err := parseVersionNumber(s, c.Version)
	if err != nil {
		return err
	}
	m, err := s.Manifest(v)
	if err != nil {
		return weightsError(dir, err)
	}
	names, err := s.DerivedNames(v)
	if err != nil {
		return err
	}
	derived := []weights.Derived{}
	for _, name := range names {
		d, err := s.Derived(v, name)
		if err != nil {
			return weightsError(dir, err)
		}
		derived = append(derived, d)
	}
	if c.JSON {
		return printJSON(a.Stdout, struct {
			weights.Manifest
			Derived []weights.Derived `json:"derived"`
		}{m, derived})
	}
	return printVersion(a.Stdout, m, derived)
}

// printVersion prints the tables of a version.
func printVersion(w io.Writer, m weights.Manifest, derived []weights.Derived) error {
	title := fmt.Sprintf("version %d, %s, of lease %d", m.Version, m.Kind, m.Lease)
	if m.RestoredFrom != nil {
		title += fmt.Sprintf(", restored from version %d", *m.RestoredFrom)
	}
	files := report.Table{Title: title, Header: []string{"file", "size", "hash"}}
	for _, f := range m.Files {
		files.Rows = append(files.Rows, []string{f.Name, byteSize(f.Size), f.Hash})
	}
	for _, d := range derived {
		for _, f := range d.Files {
			files.Rows = append(files.Rows, []string{"derived/" + d.Name + "/" + f.Name, byteSize(f.Size), f.Hash})
		}
	}
	tensors := report.Table{Header: []string{"tensor", "dtype", "shape", "file"}}
	for _, t := range m.Tensors {
		tensors.Rows = append(tensors.Rows, []string{t.Name, string(t.DType), fmt.Sprint(t.Shape), t.File})
	}
	if _, err := files.WriteTo(w); err != nil || len(m.Tensors) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s", tensors)
	return err
}

// weightsError says what can be done about a version that cannot be read.
func weightsError(dir string, err error) error {
	if errors.Is(err, weights.ErrNotFound) {
		return failure.Run("headway weights "+printable.Word(dir)+" lists the versions that there are", "%w", err)
	}
	return failure.Run("", "%w", err)
}

// weightsVerifyCmd verifies versions.
type weightsVerifyCmd struct {
	weightsPlace
	Versions []string `arg:"" optional:"" name:"version" help:"Versions to verify (default: all)."`
}

// verifiedVersion is what came of one.
type verifiedVersion struct {
	Version loop.Version `json:"version"`
	Bytes   int64        `json:"bytes"`
	OK      bool         `json:"ok"`
	Error   string       `json:"error,omitempty"`
}

// Run reads every byte and says what is wrong.
func (c *weightsVerifyCmd) Run(a *app.Process) error {
	s, dir, err := openWeights(c.Of)
	if err != nil {
		return err
	}
	versions, err := c.versions(s)
	if err != nil {
		return err
	}
	list, damaged := []verifiedVersion{}, 0
	for _, v := range versions {
		one := verifiedVersion{Version: v, OK: true}
		err := s.Verify(context.Background(), v)
		if errors.Is(err, weights.ErrNotFound) && len(c.Versions) == 0 {
			continue // pruned by the run meanwhile
		}
		if m, err := s.Manifest(v); err == nil {
			for _, f := range m.Files {
				one.Bytes += f.Size
			}
		}
		if err != nil {
			one.OK, one.Error = false, err.Error()
			damaged++
		}
		list = append(list, one)
		if !c.JSON && one.OK {
			fmt.Fprintf(a.Stdout, "version %d: %s verified\n", v, byteSize(one.Bytes))
		} else if !c.JSON {
			fmt.Fprintf(a.Stdout, "version %d: %s\n", v, one.Error)
		}
	}
	if c.JSON {
		if err := printJSON(a.Stdout, struct {
			Dir      string            `json:"dir"`
			Versions []verifiedVersion `json:"versions"`
		}{dir, list}); err != nil {
			return err
		}
	}
	if damaged > 0 {
		return failure.Run("restore their files from a copy, or delete their directories", "%d of %d versions of %s are not what was published", damaged, len(list), dir)
	}
	return nil
}

// versions are those asked for, or all.
func (c *weightsVerifyCmd) versions(s *weights.Store) ([]loop.Version, error) {
	if len(c.Versions) == 0 {
		return s.Versions()
	}
	var versions []loop.Version
	for _, text := range c.Versions {
		v, err := parseVersionNumber(s, text)
		if err != nil {
			return nil, err
		}
		versions = append(versions, v)
	}
	return versions, nil
}

// weightsDiffCmd compares two versions.
type weightsDiffCmd struct {
	weightsPlace
	A        string `arg:"" help:"The earlier version."`
	B        string `arg:"" help:"The later version, or latest."`
	Encoding string `enum:"overwrite,xor" default:"overwrite" help:"Encoding of the delta: overwrite or xor."`
}

// tensorDiff is how a tensor differs.
type tensorDiff struct {
	Name            string        `json:"name"`
	DType           weights.DType `json:"dtype"`
	Shape           []int         `json:"shape"`
	ElementsChanged int64         `json:"elements_changed"`
	Elements        int64         `json:"elements"`
	// DeltaMax is null where values cannot be compared.
	DeltaMax *float64 `json:"delta_max"`
}

// weightsDiff is what headway weights diff --json prints.
type weightsDiff struct {
	A               loop.Version `json:"a"`
	B               loop.Version `json:"b"`
	Encoding        string       `json:"encoding"`
	Tensors         int          `json:"tensors"`
	Elements        int64        `json:"elements"`
	ElementsChanged int64        `json:"elements_changed"`
	Bytes           int64        `json:"bytes"`
	DeltaBytes      int64        `json:"delta_bytes"`
	Changed         []tensorDiff `json:"changed"`
}

// Run compares.
func (c *weightsDiffCmd) Run(a *app.Process) error {
	s, dir, err := openWeights(c.Of)
	if err != nil {
		return err
	}
	from, err := parseVersionNumber(s, c.A)
	if err != nil {
		return err
	}
	to, err := parseVersionNumber(s, c.B)
	if err != nil {
		return err
	}
	change, err := s.Compare(context.Background(), from, to, weights.Encoding(c.Encoding))
	if err != nil {
		return weightsError(dir, err)
	}
	doc := weightsDiff{A: from, B: to, Encoding: c.Encoding, Tensors: change.Tensors, Elements: change.Elements,
		ElementsChanged: change.ElementsChanged, Bytes: change.Bytes, DeltaBytes: change.DeltaBytes, Changed: []tensorDiff{}}
	for _, t := range change.Changed {
		d := tensorDiff{Name: t.Name, DType: t.DType, Shape: t.Shape, ElementsChanged: t.ElementsChanged, Elements: t.Elements}
		if !math.IsNaN(t.DeltaMax) && !math.IsInf(t.DeltaMax, 0) {
			d.DeltaMax = &t.DeltaMax
		}
		doc.Changed = append(doc.Changed, d)
	}
	if c.JSON {
		return printJSON(a.Stdout, doc)
	}
	return doc.print(a.Stdout)
}

// print prints the tensors that differ, most of all first, and the sum.
func (d weightsDiff) print(w io.Writer) error {
	table := report.Table{Header: []string{"tensor", "dtype", "shape", "changed", "of", "max |Δ|"}}
	largest := 0.0
	slices.SortStableFunc(d.Changed, func(a, b tensorDiff) int {
		// shares, compared without dividing
		return cmp.Compare(float64(b.ElementsChanged)*float64(a.Elements), float64(a.ElementsChanged)*float64(b.Elements))
	})
	for _, t := range d.Changed {
		delta := "–"
		if t.DeltaMax != nil {
			delta, largest = fmt.Sprintf("%.3g", *t.DeltaMax), max(largest, *t.DeltaMax)
		}
		table.Rows = append(table.Rows, []string{t.Name, string(t.DType), fmt.Sprint(t.Shape),
			report.Share(float64(t.ElementsChanged) / float64(t.Elements)), report.Count(t.Elements), delta})
	}
	if len(table.Rows) > 0 {
		if _, err := fmt.Fprintf(w, "%s\n", table); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "version %d to %d: %d of %d tensors changed, %s of %s elements, max |Δ| %.3g; the delta by %s has %s, %s of %s\n",
		d.A, d.B, len(d.Changed), d.Tensors, report.Share(float64(d.ElementsChanged)/float64(max(d.Elements, 1))), report.Count(d.Elements), largest,
		d.Encoding, byteSize(d.DeltaBytes), report.Share(float64(d.DeltaBytes)/float64(max(d.Bytes, 1))), byteSize(d.Bytes))
	return err
}
