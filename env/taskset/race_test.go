//go:build race

package taskset

// checked: the race detector comes with checks of pointers, which end the process at once where the
// Parquet reader meets a broken page. Without them it panics, and that is an error of Load.
const checked = true
