// Package wandb reads the run files that the wandb library leaves on disk (run-ID.wandb): records in LevelDB-like blocks, each a protobuf message.
package wandb
