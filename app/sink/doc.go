// Package sink sends a run's figures, as they come, to where a team keeps those of its other runs. It
// speaks to TensorBoard, MLflow and Weights & Biases, and says what it takes to send spans of sampled rollouts.
//
// A sink never slows the run down and never ends it. It has a bounded queue, drops the figures that
// do not fit, counts those that it dropped and says so.
package sink
