// Package player plays rollouts inside a control plane. It claims them as workers elsewhere do, and gives each its task,
// its sandbox and a verdict.
package player
