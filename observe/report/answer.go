package report

import (
	"fmt"
	"strings"
)

// answerLines is how many lines an answer has at most: what is read before a reader looks away.
const answerLines = 10

// Answer begins the output of a command for people. It says how things stand, what to do and what that buys.
// Its print has at most ten lines of 80 columns.
type Answer struct {
	// Verdict is how it stands, in a sentence or two.
	Verdict string
	// Advice lists things to do, the best paid first. The print counts those that have no room.
	Advice []Advice
	// Notes must be known with it, the gravest first; those that have no room are left out.
	Notes []string
	// Kept is how many notes have room before the second advice; 0 means 1.
	Kept int
	// Rest says where the rest is, in 70 columns; "" for nowhere.
	Rest string
}

// Advice is one thing to do.
type Advice struct {
	// Do names the action, or the defect where no action is known. Why is its reason, Buys its gain and
	// Price its cost, "" for nothing to say.
	Do, Why, Buys, Price string
}

// Text prints the answer for a terminal of so many columns: 80 at most are used, 0 means 80.
func (a Answer) Text(columns int) string {
	if columns <= 0 {
		columns = NarrowColumns
	}
	columns = min(columns, NarrowColumns)
	rest := a.Rest
	room := answerLines
	if rest != "" {
		room--
	}
	lines := clipped(Wrap(shortWords(oneLine(a.Verdict), columns), columns), 3, columns)
	left, notes := 0, a.noteLines(columns)
	for i, advice := range a.Advice {
		add := advice.lines(i+1, columns)
		reserved := 0
		if i > 0 { // the gravest notes are worth more than the second advice
			for _, note := range notes[:min(max(a.Kept, 1), len(notes))] {
				reserved += len(note)
			}
		}
		if len(lines)+len(add)+reserved > room {
			left = len(a.Advice) - i
			break
		}
		lines = append(lines, add...)
	}
	for _, note := range notes {
		if len(lines)+len(note) <= room {
			lines = append(lines, note...)
		}
	}
	switch {
	case rest != "" && left > 0:
		lines = append(lines, fmt.Sprintf("%d more; %s", left, rest))
	case rest != "":
		lines = append(lines, rest)
	}
	return strings.Join(lines, "\n") + "\n"
}

// noteLines are the notes, two lines at most each.
func (a Answer) noteLines(columns int) [][]string {
	notes := make([][]string, len(a.Notes))
	for i, note := range a.Notes {
		notes[i] = clipped(labelled("! ", note, columns), 2, columns)
	}
	return notes
}

// labelled are the lines of a text behind a label.
func labelled(label, text string, columns int) []string {
	text = shortWords(oneLine(text), columns-printedWidth(label))
	return strings.Split(strings.TrimSuffix(Indented(label, text, columns), "\n"), "\n")
}

// lines are one advice: what to do, and below it what it buys and costs.
func (a Advice) lines(n, columns int) []string {
	label := fmt.Sprintf("%d. ", n)
	blank := strings.Repeat(" ", len(label))
	lines := clipped(labelled(label, a.Do, columns), 2, columns)
	for _, part := range []struct {
		label, text string
		most        int
	}{{"why   ", a.Why, 2}, {"buys  ", a.Buys, 2}, {"price ", a.Price, 1}} {
		if part.text != "" {
			lines = append(lines, clipped(labelled(blank+part.label, part.text, columns), part.most, columns)...)
		}
	}
	return lines
}

// clipped keeps the first lines of a text, and marks that it goes on.
func clipped(lines []string, most, columns int) []string {
	if len(lines) <= most {
		return lines
	}
	last := lines[most-1]
	if printedWidth(last) >= columns {
		last = last[:max(strings.LastIndexByte(last, ' '), 0)]
	}
	return append(lines[:most-1:most-1], strings.TrimRight(last, " .,;:")+"…")
}

// shortWords cuts the beginnings of words that no line could hold, such as long paths.
func shortWords(text string, columns int) string {
	words := strings.Fields(text)
	for i, word := range words {
		if letters := []rune(word); printedWidth(word) > columns && len(letters) > columns {
			words[i] = "…" + string(letters[len(letters)-columns+1:])
		}
	}
	return strings.Join(words, " ")
}
