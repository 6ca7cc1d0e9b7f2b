//go:build !linux

package verifier

import "time"

// limitMemory does nothing here: watchSpending alone bounds the memory, between two looks.
func limitMemory(uint64) error { return nil }

// processorTime is 0 here: a case has the verifier's time limit alone.
func processorTime() time.Duration { return 0 }
