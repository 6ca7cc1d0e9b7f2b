// Package sequence is what trainers in this process share, whatever computes the gradient: a batch as
// sequences with the advantages and lags of their tokens, its division into minibatches, the derivative of
// grpo's loss by each token's log-prob, and what a step says of itself.
package sequence
