package report

import (
	"bytes"
	"html/template"
	"io"
	"unicode/utf8"
)

// Document is a page of sections in the look of every other report. It is for a command that prints
// neither a run nor a comparison of runs.
type Document struct {
	// Title and Summary stand at the top; Warnings beneath them, set apart.
	Title    string
	Summary  string
	Warnings []string
	// Headline are the few figures a reader wants first; empty for none.
	Headline []Row
	// Sections in order; with more than two of them, links to them come first.
	Sections []Section
}

// Section is one part of a document. Its empty parts are left out.
type Section struct {
	// ID names it within the document, for links; letters, digits, dashes and underscores.
	ID string
	// Title is its heading; Source says beneath it where its facts come from.
	Title, Source string
	// Text are paragraphs, Findings a list after them.
	Text, Findings []string
	// Plots come before Tables. Captions, if given, are as many as Plots.
	Plots    []Plot
	Captions []string
	// Drawings come after the plots: pictures that the caller has drawn.
	Drawings []Drawing
	Tables   []Table
	// Details are paragraphs that a reader opens who wants to know how it was made.
	Details []string
}

// Drawing is a picture that the caller has drawn as one SVG element, with its texts escaped. It may
// use the page's style variables, as --text and --series-1.
type Drawing struct {
	Title, Caption string
	SVG            string
	// Wide gives it the whole width of the page.
	Wide bool
}

var documentPage = template.Must(template.New("document.html.tmpl").Funcs(template.FuncMap{"trusted": trusted}).ParseFS(templates, "document.html.tmpl", "shared.html.tmpl"))

// captioned is a picture with what is said below it.
type captioned struct {
	picture
	Caption string
}

// wordedTable is a table whose columns of words are known from those of figures.
type wordedTable struct {
	Table
	// Words is a column's class: "" for figures, "words", or "words long" where lines may break.
	Words []string
}

// longCell is the number of letters from which a cell's words may take several lines.
const longCell = 40

// words classes the columns but the first, which names the rows.
func (t Table) words() []string {
	columns := len(t.Header)
	for _, row := range t.Rows {
		columns = max(columns, len(row))
	}
	classes := make([]string, columns)
	for i := 1; i < columns; i++ {
		figures, longest := true, 0
		for _, row := range t.Rows {
			if i < len(row) {
				figures = figures && isFigure(row[i])
				longest = max(longest, utf8.RuneCountInString(row[i]))
			}
		}
		switch {
		case !figures && longest > longCell:
			classes[i] = "words long"
		case !figures:
			classes[i] = "words"
		}
	}
	return classes
}

// trusted marks a caller's drawing as markup.
func trusted(svg string) template.HTML { return template.HTML(svg) }

// DocumentHTML prints a document as one file that needs nothing else.
func DocumentHTML(w io.Writer, d Document) error {
	type section struct {
		Section
		Pictures []captioned
		Tables   []wordedTable
	}
	sections := make([]section, len(d.Sections))
	for i, s := range d.Sections {
		sections[i].Section = s
		for _, t := range s.Tables {
			sections[i].Tables = append(sections[i].Tables, wordedTable{t, t.words()})
		}
		for k, plot := range s.Plots {
			pictures, err := drawn([]Plot{plot})
			if err != nil {
				return err
			}
			for _, p := range pictures {
				c := captioned{picture: p}
				if k < len(s.Captions) {
					c.Caption = s.Captions[k]
				}
				sections[i].Pictures = append(sections[i].Pictures, c)
			}
		}
	}
	var text bytes.Buffer
	if err := documentPage.Execute(&text, map[string]any{"Document": d, "Sections": sections}); err != nil {
		return err
	}
	_, err := w.Write(printable(text.Bytes()))
	return err
}
