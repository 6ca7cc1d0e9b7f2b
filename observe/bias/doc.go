// Package bias compares the trained groups of a run with the started ones, by length, environment
// time, prompt, level and solve rate. It also compares length with the order of groups within a
// train step. A queue that evicts, a budget that discards, a filter, redundancy or a requeue may
// all choose by such a property. The report shows it.
//
// The unit of every test is the group, because its siblings share a prompt and correlate. A group
// belongs to the train step during which it was opened, and is judged once it has ended. So trained
// and started are of the same groups, and where all are trained the ratio is exactly 1. Steps after
// the first of which a group still lives are left out, or long groups would be missing among the
// trained.
//
// Started are first attempts: later ones are drawn because of what happened to the first. Where
// lengths are not known beforehand, as in a live run, only rollouts that finished have one.
// [Report.CensoredShare] says how many did not, and a bias among those stays unseen.
//
// Memory is bounded: fixed histograms and at most 128 blocks of steps, which
// grow in length instead of number.
package bias
