// Package enginetest is what every engine that is a server is held to.
//
//   - Run is the conformance suite: random requests over engines that run, with what the servers
//     answered recorded on the way and compared with what the engines made of it.
//   - A Recorder stands in front of a server and keeps its conversation as a text file; a Replay
//     answers from such a file, so that an adapter is tested on what a real server said without one.
//   - A FaultProxy stands in front of any server and fails on purpose, by a script or a seed.
//   - A Policy is a server whose tokens are a function of its weights and of what stands before
//     them, so that whoever knows both can say what a response must have been.
package enginetest
