// Package looptest holds the tools that test the loop. They are a runner for scripts ([Script]) and
// an independent checker ([Checker]). A tiny virtual world drives a loop through random settings
// and faults ([World]).
//
// The checker shares no code with package loop beyond its value types and Draw,
// the source of the loop's own random choices. It is fed the events and the
// actions, keeps its own naive models, and says what the loop should have
// decided. Drivers other than the world (the simulator, the live runtime, the
// replayer) can have their runs checked by it, too.
package looptest
