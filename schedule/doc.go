// Package schedule compares the schedules of reinforcement learning on the same
// model, GPUs and workload: synchronous on shared or separate GPUs, one step
// off, streamed, fully asynchronous, with and without partial rollouts. It says
// what each step's time is made of, and which effect gives a gain.
package schedule
