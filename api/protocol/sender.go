package protocol

import "github.com/headway-rl/headway/loop"

// SenderRequest is how the process that holds the trainer's weights says what it holds and asks
// what to do: POST /api/v1/senders/{name}. Engines whose weights are distributed take their
// tensors from it, by a collective, and none of them passes through the control plane. It is
// answered as soon as its commands are others than those it names, else after WaitS.
type SenderRequest struct {
	// Instance tells its process from the one before under the same name: random, and the same for as
	// long as the process lives.
	Instance string `json:"instance"`
	// Backend of its collectives: nccl or gloo.
	Backend string `json:"backend"`
	// Holds are the versions whose tensors it has.
	Holds []loop.Version `json:"holds,omitempty"`
	// Done are commands that it has carried out, or could not. One that is said twice counts once.
	Done []SenderDone `json:"done,omitempty"`
	// Knows are the commands that it has, by Seq: the answer waits for others.
	Knows []int64 `json:"knows,omitempty"`
	WaitS float64 `json:"wait_s"`
	// Leaving: it ends in order and is to be forgotten.
	Leaving bool `json:"leaving,omitempty"`
}

// SenderDone is how a command ended.
type SenderDone struct {
	Seq int64 `json:"seq"`
	// Error is why it could not be carried out, empty if it was.
	Error string `json:"error,omitempty"`
	// Tensors of the version, in the order in which they will be sent, and Digest of their content.
	// The digest recognises versions of the same weights; it is the answer to SenderHold.
	Tensors []SenderTensor `json:"tensors,omitempty"`
	Digest  string         `json:"digest,omitempty"`
}

// SenderTensor is one tensor of a version.
type SenderTensor struct {
	Name string `json:"name"`
	// DType in torch's words, such as bfloat16.
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

// Commands of a sender. Those of one engine come one after the other.
const (
	// SenderHold: have the tensors of Version ready.
	SenderHold = "hold"
	// SenderJoin: meet the engine at Rendezvous, as its trainer, and make Group with it.
	SenderJoin = "join"
	// SenderSend: broadcast the tensors of Version in Group, as rank 0, in their order.
	SenderSend = "send"
)

// SenderReply has all commands that are not carried out yet, at most one an engine. One that is
// there no more is given up, and its group with it.
type SenderReply struct {
	Commands []SenderCommand `json:"commands"`
	// Groups are those that may still be sent in; any other is to be destroyed.
	Groups []string `json:"groups"`
}

// SenderCommand is something to do.
type SenderCommand struct {
	Seq    int64  `json:"seq"`
	Kind   string `json:"kind"`
	Engine string `json:"engine"`
	// Version, -1 for SenderJoin.
	Version loop.Version `json:"version"`
	// Rendezvous is where to meet the engine, for SenderJoin; Group the collective's name, for
	// SenderJoin and SenderSend.
	Rendezvous string `json:"rendezvous,omitempty"`
	Group      string `json:"group,omitempty"`
}

// SenderJoining is a group that a sender and an engine are making.
type SenderJoining struct {
	Engine string `json:"engine"`
	// Address is where the sender said that the engine reaches it, empty until it has come to meet it.
	Address string `json:"address,omitempty"`
	// ForS is for how long it is waited for the engine, or for the sender where it has not come. Late: that is
	// longer than it takes where both can reach each other.
	ForS float64 `json:"for_s"`
	Late bool    `json:"late,omitempty"`
}
