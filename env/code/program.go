package code

import (
	"slices"
	"strings"

	"github.com/headway-rl/headway/env"
)

// nothing stands where a token is a mark, which is no statement: it fails as it is run.
var nothing = operation{python: `raise SyntaxError("no statement")`, golang: `panic("no statement")`}

// ended reports whether the policy ended its response.
func ended(response []int32) bool {
	return len(response) > 0 && response[len(response)-1] == env.End
}

// statements are what a response's tokens stand for, up to its end.
func (t *Task) statements(response []int32) []operation {
	var out []operation
	for _, token := range response {
		if token == env.End {
			break
		}
		i, isWord := t.vocabulary.Word(token)
		switch {
		case !isWord:
			out = append(out, nothing)
		case i < len(operations):
			out = append(out, operations[i])
		default:
			out = append(out, hazards[i-len(operations)])
		}
	}
	return out
}

// Program is the function that a response is, in the task's language. After every statement it yields
// the list, which shows the part that is right up to there.
func (t *Task) Program(response []int32) string {
	if t.language == Go {
		return goProgram(t.statements(response))
	}
	var b strings.Builder
	b.WriteString("def f(x):\n")
	for _, s := range t.statements(response) {
		b.WriteString("    " + s.python + "\n    yield x\n")
	}
	b.WriteString("    return\n    yield\n")
	return b.String()
}

// goProgram is the function in Go.
func goProgram(statements []operation) string {
	var b strings.Builder
	b.WriteString("package main\n\nimport \"slices\"\n\nvar _ = slices.Sort[[]int64]\n\nfunc f(x []int64, yield func([]int64)) {\n")
	for _, s := range statements {
		b.WriteString("\t" + s.golang + "\n\tyield(x)\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// run applies operations to a list of the caller's, and returns the list after each of them, written
// as Python writes lists.
func run(asked []operation, x []int64) []string {
	stages := make([]string, len(asked))
	x = slices.Clone(x)
	for i, o := range asked {
		x = o.apply(x)
		stages[i] = written(x)
	}
	return stages
}
