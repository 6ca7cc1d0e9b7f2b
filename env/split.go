package env

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/headway-rl/headway/loop"
)

// Split names a part of a task's prompts. The part that a prompt is in is a function of the prompt
// alone, so that no prompt is in both, for any seeds.
type Split int

const (
	// Training prompts are what rollouts are played on.
	Training Split = iota
	// HeldOut prompts are for evaluation only.
	HeldOut
)

// heldOutOneIn is the share of prompts that are held out.
const heldOutOneIn = 8

// SplitOf says which part a prompt is in.
func SplitOf(prompt []int32) Split {
	h := fnv.New64a()
	var b [4]byte
	for _, t := range prompt {
		b[0], b[1], b[2], b[3] = byte(t), byte(t>>8), byte(t>>16), byte(t>>24)
		h.Write(b[:])
	}
	if loop.Mix(h.Sum64())%heldOutOneIn == 0 {
		return HeldOut
	}
	return Training
}

// redraws bounds the search for a prompt of the wanted split. A task whose
// prompts are all on the other side is a mistake in the task.
const redraws = 10_000

// TrainingProblem is the problem of a prompt, by its number, or of a group with a prompt of its own,
// by the group's. It is a function of the task, the run's seed, that number and the level alone.
// Level 0 is the task's mixture; a level that the task does not have panics.
func TrainingProblem(task Task, seed, number uint64, level int) Problem {
	if level < 0 || level > task.Levels() {
		panic(fmt.Sprintf("env: task %s has levels 1 to %d, and 0 for their mixture; there is no level %d", task.Name(), task.Levels(), level))
	}
	return drawIn(task, training(seed, number), Training, level, task.Draw)
}

// GrownProblem is the training problem of that number with an answer of factor times as
// many tokens; at factor 1 the one that TrainingProblem makes.
func GrownProblem(task Grower, seed, number uint64, level int, factor float64) Problem {
	return drawIn(task, training(seed, number), Training, level, func(rng *rand.Rand, level int) Problem { return task.DrawGrown(rng, level, factor) })
}

// training is the source of randomness of a training problem.
func training(seed, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(loop.Mix(seed+0x9e3779b97f4a7c15), loop.Mix(number)))
}

func drawIn(task Task, rng *rand.Rand, split Split, level int, draw func(*rand.Rand, int) Problem) Problem {
	for range redraws {
		if p := draw(rng, level); SplitOf(p.Prompt) == split {
			return p
		}
	}
	panic(fmt.Sprintf("env: task %s drew no prompt of split %d at level %d in %d tries; it has too few prompts", task.Name(), split, level, redraws))
}

// HeldOutProblems returns n distinct held-out problems, the same ones for
// every run of the task. More than the task has is an error.
func HeldOutProblems(task Task, n int) ([]Problem, error) {
	rng := rand.New(rand.NewPCG(0x68656c64, 0x6f7574))
	seen := make(map[string]bool, n)
	problems := make([]Problem, 0, n)
	for misses := 0; len(problems) < n; misses++ {
		if misses > redraws {
			return nil, fmt.Errorf("env: task %s has only about %d distinct held-out prompts; held_out asks for %d", task.Name(), len(problems), n)
		}
		p := drawIn(task, rng, HeldOut, 0, task.Draw)
		if key := fmt.Sprint(p.Prompt); !seen[key] {
			seen[key], misses = true, 0
			problems = append(problems, p)
		}
	}
	return problems, nil
}
