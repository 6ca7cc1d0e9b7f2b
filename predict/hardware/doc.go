// Package hardware turns a model and a kind of GPU into speeds and limits, before
// anything runs: decode and prefill speed by roofline, the slots that fit into
// memory, a train step's time, the fewest GPUs a trainer needs, and the time of
// a weight sync.
//
// Rooflines are optimistic. Every one takes the efficiencies it was calibrated
// with, and says which limit bound.
package hardware
