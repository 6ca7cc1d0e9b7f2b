// Package tfevents writes and reads TensorBoard's event files: TFRecord frames around
// Event messages, of which only scalars are known here.
package tfevents
