// Package hardware turns a model and a kind of GPU into speeds and limits, before
// anything runs. Speeds of decoding and prefill come from rooflines. Limits are
// the slots that fit into memory and the fewest GPUs a trainer needs. Times are
// those of a train step and of a weight sync.
//
// Rooflines are optimistic. Every one takes the efficiencies it was calibrated
// with, and says which limit bound.
package hardware
