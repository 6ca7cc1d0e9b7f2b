// Package calibrate measures a rollout engine, whatever it is behind port.Engine, and writes what it
// found as the keys of a document that headway simulate, plan and predict read.
//
//   - Decoding: for each number of slots, so many responses are kept under way. Only the stretches
//     count in which every slot decodes: reading prompts and the ends of rounds are left out. Each
//     round gives one speed; a point is the median of its rounds.
//   - Prefill: the time to the first token of prompts of several lengths, alone on the engine. The
//     speed is the slope, so that what every request costs (the network, the first step) is not in it.
//   - Lengths: what responses to given prompts come to, by prompt.
//   - Switches of weights, where there are weights to switch to.
//
// The interval of a median is between two of the sorted values, whatever their distribution: with
// six rounds the least and the greatest hold it in 97 of 100 cases. What is noisier than a reader
// would expect is said in Result.Notes. Log-probs are not looked at.
package calibrate
