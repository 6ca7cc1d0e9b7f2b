package origin

import (
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
