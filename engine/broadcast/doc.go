// Package broadcast coordinates the process that has the trainer's weights, the sender, with the
// engines that take their tensors from it by a collective: it tells the sender what to have ready,
// whom to meet and when to send, and the engines what came of it. It moves no tensor.
//
// There is one sender a run. It polls, and is answered with all commands that are not carried out
// and all groups that stand: a command that is there no more is given up. Groups are of a process:
// with the sender's next one all of them are broken, and engines meet it anew.
package broadcast
