// Package serving predicts measurements of serving from their inputs: a model on GPUs, the layout of
// engines, lengths and a load. Engines, caches, placement and transfers are simulated event by event
// ([github.com/headway-rl/headway/drive/sim/serving]); the time of an engine's step is a roofline
// ([github.com/headway-rl/headway/predict/hardware]).
package serving
