// Package sink sends a run's figures, as they come, to where a team keeps those of its other
// runs: TensorBoard, MLflow, Weights & Biases, and OpenTelemetry for sampled spans of rollouts.
//
// A sink never slows the run down and never ends it: it has a bounded queue, drops what does not
// fit, counts what it dropped and says so.
package sink
