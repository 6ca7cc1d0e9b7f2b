// Package quoted finds the commands, paths and links that the repository's pages quote, so that
// tests can hold each of them against the repository.
package quoted

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Quote is a piece of a page.
type Quote struct {
	// Page is the path of the page from the repository's root, Line the line that the piece begins on, from 1.
	Page string
	Line int
	// Text is the piece: a line of code with those that continue it, the code between back-quotes, or
	// the target of a link.
	Text string
	// Whole says that a reader can type the text as it stands: a line of a code block. A piece between
	// back-quotes may leave arguments out.
	Whole bool
}

// Page is what one page quotes.
type Page struct {
	// Code has the lines of code blocks and the pieces between back-quotes, in the order of the page.
	Code []Quote
	// Links has the targets of Markdown links.
	Links []Quote
}

// records are pages that tell of the past, so that what they quote may be gone.
var records = []string{"docs/decisions", "CHANGELOG.md"}

// Pages lists the Markdown pages below a root whose quotes must hold, as slash-separated paths from there.
func Pages(root string) (pages []string, err error) {
	err = filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		name := entry.Name()
		switch {
		case slices.Contains(records, relative):
			if entry.IsDir() {
				return filepath.SkipDir
			}
		case entry.IsDir() && at != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "runs"):
			return filepath.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ".md"):
			pages = append(pages, relative)
		}
		return nil
	})
	return pages, err
}

// Folders lists the top folders of a root, without hidden ones and runs.
func Folders(root string) (names []string, err error) {
	entries, err := os.ReadDir(root)
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && name[0] != '.' && name != "runs" {
			names = append(names, name)
		}
	}
	return names, err
}

// Read finds what a page quotes: a Markdown page, or a Makefile, whose recipes are its code.
func Read(root, page string) (Page, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		return Page{}, err
	}
	if path.Base(page) == "Makefile" {
		return makefile(page, string(text)), nil
	}
	return markdown(page, string(text)), nil
}

var (
	// typed is a line of an indented code block that somebody can type.
	typed = regexp.MustCompile(`^ {4}(\$ )?(headway|go|make|[A-Z_]+=\S+) `)
	span  = regexp.MustCompile("`([^`]+)`")
	link  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// shells are the languages of blocks whose lines are commands.
	shells = []string{"", "sh", "bash", "shell", "console"}
)

// markdown reads a page of Markdown.
func markdown(page, text string) (found Page) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if info, opens := strings.CutPrefix(strings.TrimSpace(line), "```"); opens {
			begin := i + 1
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			}
			language, _, _ := strings.Cut(info, " ")
			if slices.Contains(shells, language) {
				found.Code = append(found.Code, block(page, begin, lines[begin:min(i, len(lines))], language == "console")...)
			}
			continue
		}
		if typed.MatchString(line) {
			found.Code = append(found.Code, block(page, i, lines[i:i+1], false)...)
			continue
		}
		for _, match := range span.FindAllStringSubmatch(line, -1) {
			found.Code = append(found.Code, Quote{Page: page, Line: i + 1, Text: strings.ReplaceAll(match[1], `\|`, "|")})
		}
		for _, match := range link.FindAllStringSubmatch(span.ReplaceAllString(line, "code"), -1) {
			found.Links = append(found.Links, Quote{Page: page, Line: i + 1, Text: match[1]})
		}
	}
	return found
}

// block reads the lines of a code block, the first of which has begin lines before it. In a console
// block, a line that does not begin with "$ " is output.
func block(page string, begin int, lines []string, console bool) (found []Quote) {
	for i := 0; i < len(lines); i++ {
		quote := Quote{Page: page, Line: begin + i + 1, Text: strings.TrimSpace(lines[i]), Whole: true}
		for strings.HasSuffix(quote.Text, `\`) && i+1 < len(lines) {
			i++
			quote.Text = strings.TrimRight(strings.TrimSuffix(quote.Text, `\`), " ") + " " + strings.TrimSpace(lines[i])
		}
		command, prompted := strings.CutPrefix(quote.Text, "$ ")
		if quote.Text = command; command != "" && (prompted || !console) {
			found = append(found, quote)
		}
	}
	return found
}

// variables are those of the Makefile that commands begin with.
var variables = strings.NewReplacer("$(GO)", "go", "$(MAKE)", "make", "$(TEST)", "test", "$(LESS_GC) ", "", "$$", "$")

// makefile reads the recipes of a Makefile.
func makefile(page, text string) (found Page) {
	for _, quote := range block(page, 0, strings.Split(text, "\n"), false) {
		line := strings.Split(text, "\n")[quote.Line-1]
		if recipe := strings.HasPrefix(line, "\t"); recipe {
			quote.Text = variables.Replace(strings.TrimLeft(quote.Text, "@-"))
			found.Code = append(found.Code, quote)
		}
	}
	return found
}
