// Package collective coordinates weights that go from the trainer to the
// engines by a collective, such as NCCL or Gloo. It moves no tensor.
//
// [Rendezvous] brings the members together: it waits until trainer and engines are there, and tells
// each its rank offset and the address to meet at. It does so again under a new epoch when the
// membership changes. It answers all members at once, because both sides of a collective block
// while it is initialised. A member is there while its call is open. While an epoch stands, its
// members are answered with it. A member that joins with another epoch ends it, and the others
// learn so by their next call.
//
// [Coordinator] directs the sender, the process that has the trainer's weights. It tells the sender
// which version to have ready, which engine to meet and when to send, and tells the engines the
// result. A run has one sender. The sender polls, and is answered with all commands that are open
// and all groups that stand. A command that is missing from an answer is given up. Groups belong to
// a process: when another sender takes over, its groups are broken, and engines meet it anew.
package collective
