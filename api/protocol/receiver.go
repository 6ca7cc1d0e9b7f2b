package protocol

import "github.com/headway-rl/headway/loop"

// ReceiverRequest is how a stage of an engine on another node says what it holds and asks
// what to do: POST /api/v1/receivers/{name}. It is answered when there is something to do,
// or after WaitS with nothing.
type ReceiverRequest struct {
	// Instance tells its process from the one before under the same name: random, and the same for as
	// long as the process lives.
	Instance string `json:"instance"`
	// Engine it belongs to, by the run's name of it, and Stage of that engine, from 0.
	Engine string `json:"engine"`
	Stage  int    `json:"stage"`
	// Address is the URL at which others fetch from it; empty if it passes nothing on.
	Address string `json:"address,omitempty"`
	// Form is the type that it wants weights in: "" as they were published, bf16, or an fp8 form. The fp8
	// forms are fp8-tensor, fp8-channel and fp8-block (E4M3 with scales for each tensor, output channel
	// or block of 128 by 128).
	Form string `json:"form,omitempty"`
	// Served and Loaded versions, -1 for none or unknown.
	Served loop.Version `json:"served"`
	Loaded loop.Version `json:"loaded"`
	// Done is the Seq of the command that it has carried out, 0 for none; Error why it could not.
	Done  int64  `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
	// Phases are the seconds that the command's phases took, by name.
	Phases map[string]float64 `json:"phases,omitempty"`
	WaitS  float64            `json:"wait_s"`
	// Leaving: it ends in order and is to be forgotten; its engine goes on without this stage.
	Leaving bool `json:"leaving,omitempty"`
}

// Commands of a receiver.
const (
	// ReceiveLoad: fetch Version from the first of Parents that has it, beside what is served.
	ReceiveLoad = "load"
	// ReceiveSwitch: serve Version, which is loaded, from now on.
	ReceiveSwitch = "switch"
)

// ReceiverReply is the next command; Seq 0 is none.
type ReceiverReply struct {
	Seq     int64        `json:"seq"`
	Kind    string       `json:"kind,omitempty"`
	Version loop.Version `json:"version"`
	// Parents are URLs to fetch from, the best first. One that begins with a slash is a path at the control
	// plane, at the address under which the receiver reaches it.
	Parents []string `json:"parents,omitempty"`
	// Reload: the local copy of the version is not to be trusted; it is fetched anew.
	Reload bool `json:"reload,omitempty"`
}
