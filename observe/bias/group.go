package bias

import "github.com/headway-rl/headway/loop"

// rollout is one of a live group's; environment times are in microseconds.
type rollout struct {
	// issued: an attempt has started. done: the newest attempt was scored, and its group keeps it. known: the length and
	// time of its first attempt are those started.
	issued, done, known             bool
	tokens, startedTokens           int32
	environment, startedEnvironment int64
}

// liveGroup is what is remembered of a group until it ends.
type liveGroup struct {
	prompt int64
	level  int32
	scored int32
	solved int32
	uses   int32
	// birth is the train step during which it was opened, counted from the window's
	// start; negative before it.
	birth    loop.Version
	rollouts []rollout
}
