package probe

import (
	"os"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// The programs of engines and of cells are looked for, each by its key.
func TestProgramsOfAFleet(t *testing.T) {
	here, absent := []string{os.Args[0], "{port}"}, []string{"no-such-program", "{cell}"}
	for _, test := range []struct {
		engine, cell []string
		do, where    string
	}{
		{here, nil, "", "1 to 2 of them"},
		{here, here, "", "and cells by " + os.Args[0]},
		{absent, here, "fleet.command", ""},
		{here, absent, "fleet.cell_command", ""},
	} {
		found := lookForProgram(config.Fleet{Command: test.engine, CellCommand: test.cell, Least: 1, Most: 2})
		if !strings.Contains(found.Do, test.do) || (found.Err == "") != (test.do == "") || !strings.Contains(found.Where, test.where) {
			t.Errorf("engines by %v, cells by %v: %+v", test.engine, test.cell, found)
		}
	}
}
