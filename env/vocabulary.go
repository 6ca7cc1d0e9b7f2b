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
	letters []string
	token   map[string]int32
	// between stands between two letters of a text: nothing, or a space where letters are words.
	between string
}

// NewVocabulary makes a vocabulary of the marks and the letters, in order. A
// repeated letter panics: it is a mistake in the task.
func NewVocabulary(letters string) Vocabulary { return newVocabulary(strings.Split(letters, ""), "") }

// NewWordVocabulary makes a vocabulary of the marks and words without spaces, in order, which
// texts set apart by spaces. A repeated word panics.
func NewWordVocabulary(words ...string) Vocabulary { return newVocabulary(words, " ") }

func newVocabulary(letters []string, between string) Vocabulary {
	v := Vocabulary{letters: letters, token: map[string]int32{}, between: between}
	for i, r := range v.letters {
		if _, twice := v.token[r]; twice {
			panic(fmt.Sprintf("env: letter %q is twice in the alphabet %q", r, strings.Join(letters, between)))
		}
		v.token[r] = symbols + int32(i)
	}
	return v
}

// Size is the number of tokens, the marks included.
func (v Vocabulary) Size() int { return int(symbols) + len(v.letters) }

// Word is the number of the letter or word that a token is, from 0; false for a mark and for what is no token.
func (v Vocabulary) Word(token int32) (int, bool) {
	i := int(token) - int(symbols)
	return i, i >= 0 && i < len(v.letters)
}

// Encode spells text as tokens. A letter outside the alphabet is an error.
func (v Vocabulary) Encode(text string) ([]int32, error) {
	letters := strings.Split(text, "")
	if v.between != "" {
		letters = strings.Fields(text)
	}
	var tokens []int32
	for _, r := range letters {
		t, ok := v.token[r]
		if !ok {
			return nil, fmt.Errorf("env: %q has no token; the alphabet is %q", r, strings.Join(v.letters, v.between))
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// Decode renders tokens for people: letters as they are, the separator as "→" and the end as "." so that one sees
// whether a response ended. The begin mark is left out, and a number that is no token shows as "?".
func (v Vocabulary) Decode(tokens []int32) string {
	spelled := make([]string, 0, len(tokens))
	for _, t := range tokens {
		i, isWord := v.Word(t)
		switch {
		case t == Begin:
		case t == Separator:
			spelled = append(spelled, "→")
		case t == End:
			spelled = append(spelled, ".")
		case isWord:
			spelled = append(spelled, v.letters[i])
		default:
			spelled = append(spelled, "?")
		}
	}
	return strings.Join(spelled, v.between)
}

// mustEncode spells text that the task itself made.
func (v Vocabulary) mustEncode(text string) []int32 {
	tokens, err := v.Encode(text)
	if err != nil {
		panic(err)
	}
	return tokens
}

// Problem wraps a question and its answer in the marks.
func (v Vocabulary) Problem(question, answer []int32) Problem { return v.problem(question, answer) }

func (v Vocabulary) problem(question, answer []int32) Problem {
	prompt := make([]int32, 0, len(question)+2)
	prompt = append(append(append(prompt, Begin), question...), Separator)
	return Problem{Prompt: prompt, Answer: append(append(make([]int32, 0, len(answer)+1), answer...), End)}
}
