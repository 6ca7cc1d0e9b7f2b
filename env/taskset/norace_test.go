//go:build !race

package taskset

const checked = false
