package sim_test

import (
	"reflect"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// The rules of a run whose engines were in several cells are simulated as those of one process.
func TestCellsAreOneProcess(t *testing.T) {
	run := func(cells []int) sim.Result {
		s := setup{c: 64, s: 4, b: 32, q: 2, rho: 1, tailness: 1, seed: 1, warmup: 5, steps: 20, rules: func(c *loop.Config) {
			c.EngineSlots, c.EngineCells = []int{32, 32}, cells
		}}
		result, err := sim.Run(s.config(t))
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if one, several := run(nil), run([]int{0, 1}); !reflect.DeepEqual(one, several) {
		t.Errorf("one cell\n%+v\nseveral\n%+v", one, several)
	}
}
