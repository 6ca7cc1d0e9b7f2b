package record

import (
	"fmt"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/weights"
)

// FreeText say how much may still be written to a directory, where that is known.
func FreeText(dir string) string {
	free := weights.Free(dir)
	if free < 0 {
		return ""
	}
	return fmt.Sprintf(" (%s free)", report.Bytes(free))
}

// NoRoom reports whether an error is of a disk, or of a store, that is full.
func NoRoom(err error) bool { return cell.NoSpace(err) }
