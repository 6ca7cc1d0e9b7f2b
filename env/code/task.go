package code

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/spelling"
)

// Languages that programs may be written in.
const (
	Python = "python"
	Go     = "go"
)

// Options of the task. Zero values stand for the defaults that are named.
type Options struct {
	// Language of the programs. Default Python.
	Language string
	// OperationsMin and OperationsMax bound how many operations a prompt composes: 1 to 8. Default 1 and 4.
	OperationsMin, OperationsMax int
	// Tests is the number of inputs on which a program is run. Default 8.
	Tests int
}

// operationsMost is the longest composition.
const operationsMost = 8

// Task is the task. It implements [env.Task] and [env.Reader].
type Task struct {
	language   string
	vocabulary env.Vocabulary
	min, max   int
	tests      int
}

// New makes the task. Options that it cannot have are an error.
func New(o Options) (*Task, error) {
	o.Language = cmp.Or(o.Language, Python)
	orDefault(&o.OperationsMin, 1)
	orDefault(&o.OperationsMax, max(4, o.OperationsMin))
	orDefault(&o.Tests, 8)
	languages := []string{Python, Go}
	switch {
	case !slices.Contains(languages, o.Language):
		return nil, fmt.Errorf("env/code: no language %q; there are %s; did you mean %q?", o.Language, strings.Join(languages, ", "), spelling.Nearest(o.Language, languages))
	case o.OperationsMin < 1 || o.OperationsMax < o.OperationsMin || o.OperationsMax > operationsMost:
		return nil, fmt.Errorf("env/code: %d to %d operations; both must be between 1 and %d, in order", o.OperationsMin, o.OperationsMax, operationsMost)
	case o.OperationsMax < 3:
		return nil, fmt.Errorf("env/code: programs of at most %d operations have too few prompts to hold some out; operations_max must be at least 3", o.OperationsMax)
	case o.Tests < 1:
		return nil, fmt.Errorf("env/code: %d tests; there must be at least 1", o.Tests)
	}
	var words []string
	for _, o := range slices.Concat(operations, hazards) {
		words = append(words, o.name)
	}
	return &Task{language: o.Language, vocabulary: env.NewWordVocabulary(words...), min: o.OperationsMin, max: o.OperationsMax, tests: o.Tests}, nil
}

func orDefault(v *int, otherwise int) {
	*v = cmp.Or(*v, otherwise)
}

// Name implements [env.Task].
func (t *Task) Name() string { return "code" }

// Language of the programs.
func (t *Task) Language() string { return t.language }

// Vocabulary implements [env.Task]. Prompts and responses share their words: the name of an operation in the one is
// its statement in the other.
func (t *Task) Vocabulary() env.Vocabulary { return t.vocabulary }

// Limits implements [env.Task].
func (t *Task) Limits() env.Limits {
	return env.Limits{PromptTokens: t.max + 2, ResponseTokens: t.max + 1}
}

// Levels implements [env.Task]: one for every number of operations.
func (t *Task) Levels() int { return t.max - t.min + 1 }

// Draw implements [env.Task]: as many operations as the level says; at level 0 their number is
// uniform. The answer is the statements in the order in which they are run, the innermost first.
func (t *Task) Draw(rng *rand.Rand, level int) env.Problem {
	n := t.min + level - 1
	if level == 0 {
		n = t.min + rng.IntN(t.max-t.min+1)
	}
	words := make([]string, n)
	for i := range words {
		words[i] = operations[rng.IntN(len(operations))].name
	}
	question := t.encode(words)
	slices.Reverse(words)
	return t.vocabulary.Problem(question, t.encode(words))
}

// encode spells words that the task itself made.
func (t *Task) encode(words []string) []int32 {
	tokens, err := t.vocabulary.Encode(strings.Join(words, " "))
	if err != nil {
		panic(err)
	}
	return tokens
}

// ReadPrompt implements [env.Reader]: a composition as it is written, such as reverse(sort(x)).
func (t *Task) ReadPrompt(p env.Problem) string {
	var b strings.Builder
	asked := t.asked(p)
	for _, o := range slices.Backward(asked) {
		b.WriteString(o.name + "(")
	}
	return b.String() + "x" + strings.Repeat(")", len(asked))
}

// ReadResponse implements [env.Reader]: the program.
func (t *Task) ReadResponse(response []int32) string { return t.Program(response) }

// asked are the operations of a problem in the order in which they are run.
func (t *Task) asked(p env.Problem) []operation {
	var asked []operation
	for _, token := range slices.Backward(p.Prompt) {
		if i, isWord := t.vocabulary.Word(token); isWord && i < len(operations) {
			asked = append(asked, operations[i])
		}
	}
	return asked
}
