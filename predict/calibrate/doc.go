// Package calibrate measures a rollout engine of any kind behind port.Engine. It writes its findings as the keys of a
// document that headway simulate, plan and predict read.
//
//   - Decoding: for each number of slots, so many responses are kept under way. Only the stretches
//     count in which every slot decodes: reading prompts and the ends of rounds are left out. Each
//     round gives one speed; a point is the median of its rounds.
//   - Prefill: the time to the first token of prompts of several lengths, alone on the engine. The
//     speed is the slope, which leaves out the cost of every request (the network, the first step).
//   - Lengths: those of responses to given prompts, by prompt.
//   - Switches of weights, where there are weights to switch to.
//
// The interval of a median is between two of the sorted values, for any distribution. With six rounds the least and the
// greatest hold it in 97 of 100 cases. Result.Notes names figures that are noisier than a reader would expect.
// Log-probs are not looked at.
package calibrate
