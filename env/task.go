package env

import (
	"math/rand/v2"
)

// ScoredTask makes problems and judges responses. To add one, implement it and name it
// among those that [New] makes; nothing else is needed. The split
// into training and held-out prompts, groups and service times are this
// package's work, so that no task can get them wrong. A task whose responses cannot be judged by
// looking at them implements [Task] alone and brings a [Scorer].
//
// All methods must be pure: the same arguments give the same result, from any
// goroutine.
type ScoredTask interface {
	Task
	// Score judges a response, given as sampled: with the end token where the
	// policy ended it, without where it was cut.
	Score(p Problem, response []int32) Score
}

// Task makes the problems of a task. All methods must be pure, as a ScoredTask's.
type Task interface {
	// Name is how configs and reports call the task: lower-case letters.
	Name() string
	// Vocabulary spells tokens.
	Vocabulary() Vocabulary
	// Limits bounds prompts and responses; the model's context must hold both.
	Limits() Limits
	// Levels is the number of difficulties, at least 1; level 1 is the easiest.
	Levels() int
	// Draw makes a problem of a level from the random source, and from nothing else.
	// Level 0 is the mixture of difficulties that the task is about. The prompts it
	// can make should be many thousands: about one in eight of them is held out of
	// training. A single level may have fewer.
	Draw(rng *rand.Rand, level int) Problem
}

// Limits are the longest prompt and response of a task, in tokens, the marks
// of begin, separation and end included.
type Limits struct {
	PromptTokens, ResponseTokens int
}

// Problem is one prompt with its answer, which the policy never sees.
type Problem struct {
	// Prompt ends with the separator. The model counts positions from there,
	// so a prompt's length does not move what follows it.
	Prompt []int32
	// Answer is a right response, the end token included.
	Answer []int32
}

// Score is the verdict on a response.
type Score struct {
	// Reward is between 0 and 1, and 1 exactly for an exact response.
	Reward float64
	// Exact says that the response is wholly right.
	Exact bool
}

// Reader is a task whose prompts and responses read better than their tokens spelled one by one.
type Reader interface {
	// ReadPrompt and ReadResponse write them for people.
	ReadPrompt(p Problem) string
	ReadResponse(response []int32) string
}

// Checker is a task that can tell from the beginning of a response that it will not be exact. Then
// the rest need not be sampled.
type Checker interface {
	Task
	// Failed reports whether no response that begins like this is exact. It is called
	// after every token, and must be cheap.
	Failed(p Problem, response []int32) bool
}

// Grower is a task whose answers can be asked for longer, or shorter, than it usually does.
type Grower interface {
	Task
	// DrawGrown makes a problem like Draw, with an answer of factor times as many tokens,
	// rounded. Limits holds those of every factor up to Options.Growth.
	DrawGrown(rng *rand.Rand, level int, factor float64) Problem
}
