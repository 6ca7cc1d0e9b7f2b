// Package transformer is a small decoder-only transformer in float32, made to be trained by
// reinforcement learning on a CPU. It has pre-norm blocks with RMS normalization, causal multi-head
// attention, a ReLU feed-forward and learned position embeddings, without biases. The token embedding
// also turns the last layer into logits: a lesson about one letter holds for all of them. So
// exploration does not have to find each letter anew. With a matrix of its own a policy can lose a
// letter for good: it stops to sample it before it was ever rewarded.
//
// Two roads lead through the same weights. [Pass] runs whole sequences, packed
// without padding, forward and backward: the trainer's road. [Decoder] runs one
// row per token over a key-value cache with many slots: the rollout engine's
// road. Their log-probs agree within float32 rounding, which a test pins. So the importance ratio of
// a token sampled and trained under the same weights is one.
//
// [Parameters] is one flat vector with named views. A published set is
// immutable: a new policy version is a new Parameters, and an engine switches
// by swapping a pointer.
//
// Matrix products run on hand-written AVX2 and FMA kernels where the processor
// has them and on gonum's BLAS elsewhere. Either way a row's result does not depend on the rows
// beside it. So a rollout's samples do not depend on the batch that it shares a step with.
package transformer
