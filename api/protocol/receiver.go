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
	// Address is the URL at which others fetch from it; empty if it passes nothing on. It must be at the
	// address from which the receiver calls, and https unless that is loopback.
	Address string `json:"address,omitempty"`
	// Secret signs the keys that others bring to Address. It is random, 16 to 128 characters, and the
	// same for as long as the process lives; empty without Address.
	Secret string `json:"secret,omitempty"`
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
	// Caller is who sent this, which the server fills in.
	Caller Caller `json:"-"`
}

// Commands of a receiver.
const (
	// ReceiveLoad: fetch Version from the first of Parents that has it, beside what is served, and check it by Offer.
	ReceiveLoad = "load"
	// ReceiveSwitch: serve Version, which is loaded, from now on.
	ReceiveSwitch = "switch"
)

// ReceiverReply is the next command; Seq 0 is none.
type ReceiverReply struct {
	Seq     int64        `json:"seq"`
	Kind    string       `json:"kind,omitempty"`
	Version loop.Version `json:"version"`
	// Parents are where to fetch from, the best first. The last is the control plane.
	Parents []ReceiverParent `json:"parents,omitempty"`
	// Offer is the hash of what the control plane offers of the version: "sha256:" and 64 hexadecimal
	// digits. A parent that offers something else is left for the next.
	Offer string `json:"offer,omitempty"`
	// Reload: the local copy of the version is not to be trusted; it is fetched anew.
	Reload bool `json:"reload,omitempty"`
}

// ReceiverParent is where a version can be fetched from.
type ReceiverParent struct {
	// URL of the parent. One that begins with a slash is a path at the control plane, which takes the
	// receiver's own token.
	URL string `json:"url"`
	// Key is what the parent takes for this version for a while; empty for the control plane.
	Key string `json:"key,omitempty"`
	// Dial is the host and port to connect to in place of URL's; empty for the control plane.
	Dial string `json:"dial,omitempty"`
}
