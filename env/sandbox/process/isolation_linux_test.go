//go:build !race

package process

import (
	"testing"

	"github.com/headway-rl/headway/env/sandbox/sandboxtest"
)

// TestUnbounded shows which attacks plain processes let out. A program under the race detector takes more addresses
// than some of these processes may have.
func TestUnbounded(t *testing.T) {
	sandboxtest.Unbounded(t, subject(), map[string]string{"container": "of bubblewrap, without capabilities and control groups"})
}
