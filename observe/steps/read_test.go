package steps

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// A run that is resumed writes its lines anew, without those of steps that it makes again. Who follows the run gets every
// step once, as it counts.
func TestAReaderGoesOnInTheFileOfAResumedRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	write := func(name string, loss float64, steps ...loop.Version) {
		var text []byte
		for _, step := range steps {
			text = fmt.Appendf(text, `{"step":%d,"loss":%g}`+"\n", step, loss)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, 1, 1, 2, 3)
	r := Open(dir)
	defer func() { _ = r.Close() }()
	next := func(upTo, step loop.Version, loss float64) {
		t.Helper()
		line := r.Next(upTo)
		if step == 0 && line != nil || step > 0 && (line == nil || line.Step != step || line.Loss != loss) {
			t.Errorf("up to %d: %+v, want step %d with %g", upTo, line, step, loss)
		}
	}
	next(2, 1, 1)
	next(2, 2, 1)
	next(2, 0, 0)
	write(path+".new", 2, 1, 2, 3, 4)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	next(4, 3, 2)
	next(4, 4, 2)
	next(4, 0, 0)
}
