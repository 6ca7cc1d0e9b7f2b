// Package sequence is the part that trainers in this process share, with any way to compute the gradient. It has a
// batch as sequences with the advantages and lags of their tokens, and its division into minibatches. It has the
// derivative of grpo's loss by each token's log-prob, and the report of a step on itself.
package sequence
