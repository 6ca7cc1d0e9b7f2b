package reproduce

import (
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/predict/theory"
)

// cases are the published tables as they are, and the documents of the studies.
//
//go:embed cases
var cases embed.FS

// published is one published table: facts with their source.
type published struct {
	name string
	// source is the first comment line: who, what and when.
	source string
	header []string
	rows   [][]string
}

// readTable reads one of the embedded tables by its name without the ending.
func readTable(name string) (published, error) {
	file, err := cases.Open(path.Join("cases", name+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		return published{}, fmt.Errorf("reproduce: there is no published table %q", name)
	}
	if err != nil {
		return published{}, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return published{}, err
	}
	return parseTable(name, string(text))
}

// parseTable reads a comment line that names the source, a header and its rows.
func parseTable(name, text string) (published, error) {
	p := published{name: name}
	first, rest, _ := strings.Cut(text, "\n")
	source, ok := strings.CutPrefix(first, "# ")
	if !ok {
		return p, fmt.Errorf("reproduce: cases/%s.csv:1: expected a comment that names the source, found %q", name, first)
	}
	p.source = source
	lines, err := csv.NewReader(strings.NewReader(rest)).ReadAll()
	if err != nil {
		return p, fmt.Errorf("reproduce: cases/%s.csv: %w", name, err)
	}
	if len(lines) < 2 {
		return p, fmt.Errorf("reproduce: cases/%s.csv: expected a header and at least one row", name)
	}
	p.header, p.rows = lines[0], lines[1:]
	return p, nil
}

// text is a cell, "" for a column that the table lacks.
func (p published) text(row int, column string) string {
	for i, name := range p.header {
		if name == column {
			return p.rows[row][i]
		}
	}
	return ""
}

// number is a cell as a number; unknown where the table lacks the column or the
// cell is empty.
func (p published) number(row int, column string) theory.Figure {
	value, err := strconv.ParseFloat(p.text(row, column), 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
		return theory.Figure{}
	}
	return theory.Known(value)
}

// value is a number that a case cannot do without.
func (p published) value(row int, column string) (float64, error) {
	value, ok := p.number(row, column).Value()
	if !ok {
		return 0, fmt.Errorf("reproduce: cases/%s.csv: row %d has no number in column %s", p.name, row+1, column)
	}
	return value, nil
}

// values are several of them, in the order of the columns.
func (p published) values(row int, columns ...string) ([]float64, error) {
	var values []float64
	for _, column := range columns {
		value, err := p.value(row, column)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// rounding is half a unit of the last digit that a cell prints.
func (p published) rounding(row int, column string) float64 {
	_, decimals, ok := strings.Cut(p.text(row, column), ".")
	if !ok {
		return 0.5
	}
	return 0.5 * math.Pow10(-len(decimals))
}
