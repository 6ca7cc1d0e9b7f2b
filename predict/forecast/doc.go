// Package forecast has what is expected of a run before its first step, as a probe measured it.
package forecast
