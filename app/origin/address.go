package origin

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/loop"
)

// AddressFile is where a control plane says in its run directory how it is reached.
const AddressFile = "serve.json"

// Address is the content of [AddressFile].
type Address struct {
	URL string `json:"url"`
	Run string `json:"run"`
	PID int    `json:"pid"`
	// Finished is the version that the run ended at with all its train steps made, absent before.
	Finished *loop.Version `json:"finished,omitempty"`
}

// FinishedAt returns the version that the run of a directory ended at with all its train steps made. It reports whether the
// run has.
func FinishedAt(dir string) (version loop.Version, ok bool) {
	said, ok := AddressOf(dir)
	if !ok || said.Finished == nil {
		return loop.NoVersion, false
	}
	return *said.Finished, true
}

// AddressOf returns what a control plane has said in a run directory. It reports whether one has.
func AddressOf(dir string) (said Address, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, AddressFile))
	return said, err == nil && json.Unmarshal(text, &said) == nil && said.URL != "" && said.Run != ""
}
