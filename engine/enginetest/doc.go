// Package enginetest is what every engine that is a server is held to.
//
//   - Run is the conformance suite: random requests over engines that run. It records the servers'
//     answers on the way and compares them with the engines' results.
//   - A Recorder stands in front of a server and keeps its conversation as a text file. A Replay
//     answers from such a file, so that an adapter is tested on a real server's answers without one.
//   - A FaultProxy stands in front of any server and fails on purpose, by a script or a seed.
//   - A Policy is a server whose tokens are a function of its weights and of the tokens before them.
//     So a test that knows both can say how a response must have read.
package enginetest
