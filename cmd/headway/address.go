package main

import (
	"github.com/headway-rl/headway/loop"
)

// addressFile is where a control plane says in its run directory how it is reached.
const addressFile = "serve.json"

// address is what stands in addressFile.
type address struct {
	URL string `json:"url"`
	Run string `json:"run"`
	PID int    `json:"pid"`
	// Finished is the version that the run ended at with all its train steps made, absent before.
	Finished *loop.Version `json:"finished,omitempty"`
}
