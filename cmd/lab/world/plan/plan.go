// Package plan holds the parts and the faults of a world, which a seed draws. A plan is JSON: one that failed can be
// kept, made smaller and run again.
package plan

// Plan is a world: its hosts, its rules and its faults. The order of everything within it follows from Seed.
type Plan struct {
	Seed uint64 `json:"seed"`
	// Steps is the number of train steps of the run.
	Steps int `json:"steps"`
	// Planes is the number of control planes, one of which is the writer. With one, its broker is embedded or another host.
	Planes int `json:"planes"`
	// Embedded: the one plane's broker is a server inside it.
	Embedded bool `json:"embedded,omitempty"`
	// Brokers is the number of servers of the cluster that planes use instead of one broker; 0 for none.
	Brokers int      `json:"brokers,omitempty"`
	Engines []Engine `json:"engines"`
	Workers int      `json:"workers"`
	// Receivers pull the weights of each version from the plane.
	Receivers int `json:"receivers,omitempty"`
	// Durable: planes and broker wait for their disks, so that a loss of power takes nothing that was acknowledged.
	Durable bool    `json:"durable,omitempty"`
	Store   Store   `json:"store,omitzero"`
	Rules   Rules   `json:"rules"`
	Trainer Trainer `json:"trainer"`
	// ThinkMS is how long a worker is busy between the response and the reward, in milliseconds.
	ThinkMS int `json:"think_ms,omitempty"`
	// Rows: engines say the experts of every pass, and the trainer fetches them. Every engine has spans then.
	Rows bool `json:"rows,omitempty"`
	// Chat: workers play by chats, nil for prompts of tokens.
	Chat   *Chat   `json:"chat,omitempty"`
	Faults []Fault `json:"faults"`
}

// Store is how planes keep log and payloads. Zero values are the document's defaults.
type Store struct {
	// SnapshotEvery is the number of train steps between snapshots.
	SnapshotEvery int `json:"snapshot_every,omitempty"`
	// NoTrace: planes mirror no log into their folder. A host of the world, the scribe, copies it from the broker.
	NoTrace bool `json:"no_trace,omitempty"`
	// PayloadBytesMax bounds the payloads.
	PayloadBytesMax int `json:"payload_bytes_max,omitempty"`
	// Prompt is the number of further tokens of each prompt, so that payloads take room.
	Prompt int `json:"prompt,omitempty"`
}

// Engine is a server of rollouts, in the form of vLLM.
type Engine struct {
	Slots int `json:"slots"`
	// Spans: it says which weights sampled which tokens.
	Spans bool `json:"spans,omitempty"`
	// TokenUS is the time that a token takes, in microseconds.
	TokenUS int `json:"token_us"`
	// LoadMS is the time in which it reads weights, in milliseconds. It samples on meanwhile.
	LoadMS int `json:"load_ms,omitempty"`
	// Cell is the number of its cell, from 1 on, which plays on it beside the planes; 0 for the planes themselves. Players
	// of the plan's Chat are each cell's as well.
	Cell int `json:"cell,omitempty"`
}

// Rules are those of the document that the planes are given.
type Rules struct {
	GroupSize int `json:"group_size"`
	Batch     int `json:"batch"`
	// Redundancy is how many rollouts of a group begin beyond its size.
	Redundancy int `json:"redundancy,omitempty"`
	// CacheAware: rollouts are placed where their prefix is cached.
	CacheAware bool `json:"cache_aware,omitempty"`
	Attempts   int  `json:"attempts"`
	// Queue and Sync are the document's keys under queue and sync, in YAML's flow form.
	Queue string `json:"queue"`
	Sync  string `json:"sync,omitempty"`
	// LeaseMS, ClaimMS and WriterMS are how long leases of trainer, worker and writer last, in milliseconds.
	LeaseMS  int `json:"lease_ms"`
	ClaimMS  int `json:"claim_ms"`
	WriterMS int `json:"writer_ms"`
}

// Trainer is what the trainer does.
type Trainer struct {
	// StepMS is the time of a train step, in milliseconds.
	StepMS int `json:"step_ms"`
	// Ranks share each batch, every one on a host of its own; 0 for one.
	Ranks int `json:"ranks,omitempty"`
	// Acks: versions that no engine takes are acknowledged without weights.
	Acks bool `json:"acks,omitempty"`
	// Back is how many batches go by for each that is handed back untrained; 0 for never.
	Back int `json:"back,omitempty"`
	// Floats is the number of weights of the model; 0 for 4.
	Floats int `json:"floats,omitempty"`
	// References: batches are leased by reference. Ahead: groups are fetched before their lease as well.
	References bool `json:"references,omitempty"`
	Ahead      bool `json:"ahead,omitempty"`
	// Window bounds the bytes that the trainer's connections hold unread; 0 for as many as a kernel's. With one, prompts
	// of tokens are long, so that shares do not fit.
	Window int `json:"window,omitempty"`
}

// Chat is how a worker's agent talks to the policy.
type Chat struct {
	// Turns of a rollout, and Choices of each request.
	Turns   int `json:"turns"`
	Choices int `json:"choices"`
	// Stream: answers come as events.
	Stream bool `json:"stream,omitempty"`
	// LeaveMS bounds, in milliseconds, how long an agent in a hurry waits for an answer before it asks again. 0 means that
	// no agent is in a hurry.
	LeaveMS int `json:"leave_ms,omitempty"`
	// Players is how many rollouts at once each plane plays itself, beside the workers; 0 for none.
	Players int `json:"players,omitempty"`
	// Environment: they play on a server that answers each message, and not in tasks of one turn.
	Environment bool `json:"environment,omitempty"`
	// WaitMS is how long the gateway waits for the first token before it says "later", in milliseconds.
	WaitMS int `json:"wait_ms"`
}

// Kinds of faults.
const (
	Kill   = "kill"   // the host's program ends at its N-th scheduling from AtMS on, and is started again after ForMS
	Freeze = "freeze" // the host's program stands still for ForMS
	Cut    = "cut"    // nothing passes from Host to Other for ForMS; Both: nor back
	Reset  = "reset"  // every connection between Host and Other is reset
	Slow   = "slow"   // the link between Host and Other is N times as slow for ForMS
	Clock  = "clock"  // the host's time of day steps by ByMS
	Full   = "full"   // the host's disk is full for ForMS
	Drag   = "drag"   // the host's disk takes N ms for each write and sync, for ForMS
	Power  = "power"  // the host loses power: all that was not synced may be lost or torn; it is started again after ForMS
	Flip   = "flip"   // the host is killed, one byte of a file of its (Path) is flipped, and it is started again after ForMS
	Rot    = "rot"    // a bit flips in each block of weights that the host writes, for ForMS
	Double = "double" // requests of the host are sent twice, for ForMS
	Stop   = "stop"   // the host's plane is told to stop in order, as by SIGTERM, and is started again ForMS after its end
	Mute   = "mute"   // answers to the host are lost after the request has been done, for ForMS
	Drop   = "drop"   // of the writes from Host to Other, one in N is lost with its connection, for ForMS; Path: only requests of it
	Lag    = "lag"    // of the writes from Host to Other, one in N comes 200 ms late, for ForMS; Path: as of Drop
	Abort  = "abort"  // the engine ends the responses that are under way
	Twin   = "twin"   // another process of the host's cell begins beside it, on a host of its own, and ends after ForMS; Both: connections reach it
	Deaf   = "deaf"   // the engine says that it has taken new weights, and goes on with the old ones, for ForMS
)

// Fault is something that happens to the world.
type Fault struct {
	AtMS  int64  `json:"at_ms"`
	Kind  string `json:"kind"`
	Host  string `json:"host"`
	Other string `json:"other,omitempty"`
	ForMS int64  `json:"for_ms,omitempty"`
	ByMS  int64  `json:"by_ms,omitempty"`
	N     uint64 `json:"n,omitempty"`
	Both  bool   `json:"both,omitempty"`
	Path  string `json:"path,omitempty"`
	// Await is an event for which the fault waits from AtMS on.
	Await Await `json:"await,omitzero"`
}

// Await is the N-th event of a kind after a fault's time, one of Asks, Hears, Writes and Sends. A fault that has waited for ten
// seconds waits no more.
type Await struct {
	// By is the host whose event it is, or the role of it.
	By string `json:"by,omitempty"`
	// Asks is a call that the host begins, and Hears one that it is answered, by the name in pairs of states and faults.
	// A receiver that says that it has loaded a version asks "receivers loaded".
	Asks  string `json:"asks,omitempty"`
	Hears string `json:"hears,omitempty"`
	// Writes is a part of the path of a file that the host writes.
	Writes string `json:"writes,omitempty"`
	// Sends is a part of what the host writes to a connection: a message's subject, or a call's path.
	Sends string `json:"sends,omitempty"`
	N     uint64 `json:"n,omitempty"`
	// LaterMS is how long after the event the fault comes, in milliseconds.
	LaterMS int64 `json:"later_ms,omitempty"`
}
