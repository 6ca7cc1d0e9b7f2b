package env

import (
	"cmp"
	"math/rand/v2"
)

// additionDigits bounds the summands of addition: below 1000, a million pairs.
const additionDigits = 3

// addition asks for the sum of two numbers. All three numbers are written with
// the least significant digit first, so that every digit of the answer depends
// on what was already seen and the carry, as in adding by hand.
type addition struct {
	vocabulary Vocabulary
}

func newAddition(Options) (ScoredTask, error) {
	return addition{vocabulary: NewVocabulary("0123456789+")}, nil
}

func (a addition) Name() string           { return "addition" }
func (a addition) Vocabulary() Vocabulary { return a.vocabulary }
func (a addition) Limits() Limits {
	return Limits{PromptTokens: 2*additionDigits + 3, ResponseTokens: additionDigits + 2}
}

// Levels is one for every number of digits that the summands may have.
func (a addition) Levels() int { return additionDigits }

// Draw makes two summands of at most as many digits as the level says, at level 0
// below 1000, each written in exactly three digits with leading zeros, so that a
// digit's place in the prompt is fixed.
func (a addition) Draw(rng *rand.Rand, level int) Problem {
	level = cmp.Or(level, additionDigits)
	limit := 1
	for range level {
		limit *= 10
	}
	x, y := rng.IntN(limit), rng.IntN(limit)
	question := a.digits(x, additionDigits)
	question = append(question, a.vocabulary.mustEncode("+")...)
	question = append(question, a.digits(y, additionDigits)...)
	return a.vocabulary.problem(question, a.digits(x+y, additionDigits+1))
}

// digits spells n with the least significant digit first, in width digits.
func (a addition) digits(n, width int) []int32 {
	text := make([]byte, width)
	for i := range text {
		text[i] = byte('0' + n%10)
		n /= 10
	}
	return a.vocabulary.mustEncode(string(text))
}

// Score gives partial credit by [creditByPlace].
func (a addition) Score(p Problem, response []int32) Score { return creditByPlace(p, response) }

// Failed implements [Checker]: a wrong digit stays wrong.
func (a addition) Failed(p Problem, response []int32) bool { return wrongPlace(p, response) }
