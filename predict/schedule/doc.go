// Package schedule compares the schedules of reinforcement learning on the same
// model, GPUs and workload. They are synchronous on shared or separate GPUs, one
// step off, streamed, and fully asynchronous, with and without partial rollouts.
// It says what each step's time is made of, and which effect gives a gain.
//
// A schedule is a setting of the production loop: [Compare] simulates every one of
// them through it and sets closed forms beside. All of them train on the same
// batch. A step here is the time in which one batch, BatchGroups groups, is
// trained, also where it is trained in several pieces.
//
// The time of a step is accounted for without a remainder:
//
//	T = work + waste + tail + train + log-probs + sync − overlap + idle
//
// Part work is the time to generate the trained tokens with every slot busy, and
// waste the same for tokens that were never trained. Part tail is the time in
// which engines generate beyond that because slots are empty. Parts train,
// log-probs and sync are the time of each. Part overlap is the time of work that
// runs beside other work, and idle the time in which nothing runs. The gain of a
// schedule over another is the difference of their parts.
package schedule
