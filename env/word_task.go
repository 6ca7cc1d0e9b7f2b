package env

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// alphabet of the word tasks: 26 letters, so that words of up to five letters
// are twelve million and nothing can be learned by heart.
const alphabet = "abcdefghijklmnopqrstuvwxyz"

// wordTask is a task on one random word: the response is the word, transformed.
type wordTask struct {
	name       string
	vocabulary Vocabulary
	min, max   int
	growth     float64 // the largest
	transform  func([]int32)
}

func newWordTask(name string, o Options, transform func([]int32)) (ScoredTask, error) {
	if o.LettersMin < 1 || o.LettersMax < o.LettersMin || o.LettersMax > maxLetters {
		return nil, fmt.Errorf("env: task %s of %d to %d letters; both must be between 1 and %d, in order",
			name, o.LettersMin, o.LettersMax, maxLetters)
	}
	if o.LettersMax < minLettersMax {
		return nil, fmt.Errorf("env: task %s of at most %d letters has too few words to hold 1000 out; letters_max must be at least %d",
			name, o.LettersMax, minLettersMax)
	}
	return wordTask{name: name, vocabulary: NewVocabulary(alphabet), min: o.LettersMin, max: o.LettersMax, growth: o.Growth, transform: transform}, nil
}

const (
	maxLetters    = 64
	minLettersMax = 3 // 26³/8 = 2197 held-out words
)

func (w wordTask) Name() string           { return w.name }
func (w wordTask) Vocabulary() Vocabulary { return w.vocabulary }
func (w wordTask) Limits() Limits {
	most := grown(w.max, w.growth)
	return Limits{PromptTokens: most + 2, ResponseTokens: most + 1}
}

// Levels is one for every length of a word, the shortest first.
func (w wordTask) Levels() int { return w.max - w.min + 1 }

// Draw makes a word of the level's length; at level 0 its length is uniform
// between min and max letters.
func (w wordTask) Draw(rng *rand.Rand, level int) Problem { return w.DrawGrown(rng, level, 1) }

// grown is how many letters make an answer, its end included, factor times as long.
func grown(letters int, factor float64) int {
	return max(int(math.Round(float64(letters+1)*factor))-1, 1)
}

// DrawGrown implements [Grower].
func (w wordTask) DrawGrown(rng *rand.Rand, level int, factor float64) Problem {
	letters := w.min + level - 1
	if level == 0 {
		letters = w.min + rng.IntN(w.max-w.min+1)
	}
	question := make([]int32, grown(letters, factor))
	for i := range question {
		question[i] = symbols + rng.Int32N(int32(len(w.vocabulary.letters)))
	}
	answer := slices.Clone(question)
	w.transform(answer)
	return w.vocabulary.problem(question, answer)
}

// Score gives partial credit by [creditByPlace].
func (w wordTask) Score(p Problem, response []int32) Score { return creditByPlace(p, response) }

// Failed implements [Checker]: a wrong letter stays wrong.
func (w wordTask) Failed(p Problem, response []int32) bool { return wrongPlace(p, response) }

// wrongPlace reports whether a place of the response differs from the answer.
func wrongPlace(p Problem, response []int32) bool {
	for i, t := range response {
		if i >= len(p.Answer) || p.Answer[i] != t {
			return true
		}
	}
	return false
}

// creditByPlace is the share of places that are right, counting the end as a
// place: matches over the longer of answer and response. Every place that
// becomes right raises the reward, so that a policy that starts from noise
// climbs letter by letter, and running on past the end costs.
func creditByPlace(p Problem, response []int32) Score {
	right := 0
	for i, t := range p.Answer {
		if i < len(response) && response[i] == t {
			right++
		}
	}
	longer := max(len(p.Answer), len(response))
	return Score{Reward: float64(right) / float64(longer), Exact: right == longer}
}
