package protocol

import "github.com/headway-rl/headway/loop"

// Control is the goal that a run keeps by moving its own settings, and how that goes.
type Control struct {
	// TargetMean is the largest mean staleness that is wanted, in versions. TargetShare is the least share
	// of trained rollouts or tokens (Of) within Within versions. Each is 0 for no such goal. Window is the
	// number of train steps over which they are meant.
	TargetMean  float64      `json:"target_mean,omitempty"`
	TargetShare float64      `json:"target_share,omitempty"`
	Within      loop.Version `json:"within,omitempty"`
	Of          string       `json:"of,omitempty"`
	Window      int          `json:"window"`
	loop.ControlStatus
	// Says is all of it in a sentence, with what to do where something is wrong.
	Says string `json:"says"`
	// LastMoves are the newest changes of settings, in order.
	LastMoves []Move `json:"last_moves"`
}

// Move is one change of a setting.
type Move struct {
	// Step is the trainer's version at which it was made, TimeS when, in seconds since the run started.
	Step  loop.Version `json:"step"`
	TimeS float64      `json:"time_s"`
	// Setting by its name, From and To its values, Reason why.
	Setting string  `json:"setting"`
	From    float64 `json:"from"`
	To      float64 `json:"to"`
	Reason  string  `json:"reason"`
}
