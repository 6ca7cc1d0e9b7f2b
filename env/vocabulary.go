package env

import (
	"fmt"
	"strings"
)

// The first tokens of every vocabulary.
const (
	Begin     int32 = 0 // opens a prompt
	Separator int32 = 1 // closes it; the response follows
	End       int32 = 2 // closes the response
	symbols   int32 = 3 // the first token that is a symbol of the task
)

// Vocabulary is the alphabet of a task behind the three marks.
type Vocabulary struct {
	letters []rune
	token   map[rune]int32
}

// NewVocabulary makes a vocabulary of the marks and the letters, in order. A
// repeated letter panics: it is a mistake in the task.
func NewVocabulary(letters string) Vocabulary {
	v := Vocabulary{letters: []rune(letters), token: map[rune]int32{}}
	for i, r := range v.letters {
		if _, twice := v.token[r]; twice {
			panic(fmt.Sprintf("env: letter %q is twice in the alphabet %q", r, letters))
		}
		v.token[r] = symbols + int32(i)
	}
	return v
}

// Size is the number of tokens, the marks included.
func (v Vocabulary) Size() int { return int(symbols) + len(v.letters) }

// Encode spells text as tokens. A letter outside the alphabet is an error.
func (v Vocabulary) Encode(text string) ([]int32, error) {
	var tokens []int32
	for _, r := range text {
		t, ok := v.token[r]
		if !ok {
			return nil, fmt.Errorf("env: %q has no token; the alphabet is %q", r, string(v.letters))
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// Decode renders tokens for people: letters as they are, the separator as "→"
// and the end as "." so that one sees whether a response ended; the begin mark
// is left out, and what is no token shows as "?".
func (v Vocabulary) Decode(tokens []int32) string {
	var b strings.Builder
	for _, t := range tokens {
		switch {
		case t == Begin:
		case t == Separator:
			b.WriteRune('→')
		case t == End:
			b.WriteRune('.')
		case t >= symbols && int(t) < v.Size():
			b.WriteRune(v.letters[t-symbols])
		default:
			b.WriteRune('?')
		}
	}
	return b.String()
}

// mustEncode spells text that the task itself made.
func (v Vocabulary) mustEncode(text string) []int32 {
	tokens, err := v.Encode(text)
	if err != nil {
		panic(err)
	}
	return tokens
}

// problem wraps a question and its answer in the marks.
func (v Vocabulary) problem(question, answer []int32) Problem {
	prompt := make([]int32, 0, len(question)+2)
	prompt = append(append(append(prompt, Begin), question...), Separator)
	return Problem{Prompt: prompt, Answer: append(append(make([]int32, 0, len(answer)+1), answer...), End)}
}
