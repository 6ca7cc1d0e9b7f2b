package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// wordsMax is the longest sentence: past it a reader who is not at home in English reads it twice.
const wordsMax = 25

// sentence is one sentence of a text.
type sentence struct {
	text  string
	words int
}

// long reports whether a sentence has more words than a reader holds at once.
func (s sentence) long() bool { return s.words > wordsMax }

// hidden matches a clause that stands where a named subject should: it begins a sentence, or follows a mark or a
// conjunction. Nobody, whoever and whatever hide the actor wherever they stand.
var hidden = regexp.MustCompile(`^(What|Who|Whose) |[;:,] (and |but |or |so )?what |[;:] (and )?(who|whose) |` +
	`\b(and|but|because|that|if|when|where|while|since) what |(?i)\b(nobody|whoever|whatever)\b`)

// listing matches what hidden finds and what has a subject all the same: a verb before it that takes the clause as its object.
var listing = regexp.MustCompile(`\b(says?|said|tells?|asks?|shows?|prints?|lists?|names?|explains?|decides?|describes?|knows?|sees?|see|finds?|states?|records?)\b[^.;:]*[,:] (and |or )?(what|who|whose) `)

// subjectless reports whether the subject of a sentence, or of a clause in it, is a clause or nobody. A question is none.
func (s sentence) subjectless() bool {
	return !strings.HasSuffix(s.text, "?") && hidden.MatchString(s.text) && !listing.MatchString(s.text)
}

var (
	codeSpan = regexp.MustCompile("``[^`]+``|`[^`]+`")
	pageLink = regexp.MustCompile(`!?\[([^\]]*)\]\([^()\s]*\)`)
	item     = regexp.MustCompile(`^\s*([-*+]|\d+[.)])\s+`)
	// ends is where a sentence may end: a mark, what closes after it, and space before the next begins.
	ends = regexp.MustCompile(`[.!?]["'”’)*_\]]*\s+`)
	// short are abbreviations, after whose point a sentence goes on.
	short = []string{"e.g.", "i.e.", "vs.", "etc.", "cf.", "no.", "fig.", "approx.", "resp."}
)

// paragraphs are the pieces of prose in a page of Markdown: no code, headings, tables, pictures or generated parts.
// An item of a list is a paragraph of its own.
func paragraphs(page string) (found []string) {
	var open []string
	flush := func() {
		if len(open) > 0 {
			found = append(found, strings.Join(open, " "))
		}
		open = nil
	}
	code, made := false, false
	for line := range strings.SplitSeq(page, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
			flush()
		case code:
		case strings.HasPrefix(trimmed, "<!-- generated:"):
			made = true
			flush()
		case strings.HasPrefix(trimmed, "<!-- end:"):
			made = false
		case made:
		case trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "<") ||
			strings.HasPrefix(line, "    ") && len(open) == 0:
			flush()
		case item.MatchString(line):
			flush()
			open = []string{item.ReplaceAllString(line, "")}
		default:
			open = append(open, strings.TrimPrefix(trimmed, "> "))
		}
	}
	flush()
	return found
}

// sentences cuts a paragraph into its sentences. Code counts as one word.
func sentences(paragraph string) (found []sentence) {
	text := codeSpan.ReplaceAllString(paragraph, "`code`")
	text = pageLink.ReplaceAllString(text, "$1")
	begin := 0
	for _, at := range append(ends.FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		piece := strings.TrimSpace(text[begin:at[1]])
		if at[1] < len(text) && (abbreviated(piece) || unicode.IsLower(rune(text[at[1]]))) {
			continue
		}
		begin = at[1]
		if words := words(piece); words > 0 {
			found = append(found, sentence{piece, words})
		}
	}
	return found
}

// abbreviated reports whether a piece ends in an abbreviation.
func abbreviated(piece string) bool {
	fields := strings.Fields(piece)
	return len(fields) > 0 && slices.Contains(short, strings.ToLower(strings.TrimLeft(fields[len(fields)-1], "(")))
}

// words counts the words of a piece: what has a letter or a digit.
func words(piece string) (count int) {
	for word := range strings.FieldsSeq(piece) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			count++
		}
	}
	return count
}

func TestSentences(t *testing.T) {
	page := "# A heading that is no sentence\n\nOne two `three four five` six. Seven, e.g. eight [nine ten](x.md).\nEleven?\n" +
		"- twelve\n- thirteen\n  fourteen\n\n| a | table |\n\n```sh\ncode here\n```\n<!-- generated: x -->\nmade\n<!-- end: x -->\nlast v1.2 one\n"
	var got []string
	var counts []int
	for _, paragraph := range paragraphs(page) {
		for _, s := range sentences(paragraph) {
			got, counts = append(got, s.text), append(counts, s.words)
		}
	}
	want := []string{"One two `code` six.", "Seven, e.g. eight nine ten.", "Eleven?", "twelve", "thirteen fourteen", "last v1.2 one"}
	if !slices.Equal(got, want) || !slices.Equal(counts, []int{4, 5, 1, 1, 2, 3}) {
		t.Errorf("%q, words %v, want %q", got, counts, want)
	}
}

func TestSubjects(t *testing.T) {
	for text, want := range map[string]bool{
		"What is lost is played again.":                     true,
		"What is lost?":                                     false,
		"Who reaches the port may stop a run.":              true,
		"A key that nobody reads is an error.":              true,
		"It waits, and what comes late is dropped.":         true,
		"The store says that what is written stays.":        true,
		"The report says what binds, what it costs.":        false,
		"The page says which step is late, what it costs.":  false,
		"Framework names the framework that wrote the log.": false,
		"A reader who has no GPU runs the simulator.":       false,
		"It takes batches, whose means hardly correlate.":   false,
		"The loop decides what to start.":                   false,
	} {
		if got := (sentence{text: text}).subjectless(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
