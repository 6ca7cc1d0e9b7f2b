package protocol

// RendezvousRequest joins a collective over which weights go from trainer to engines:
// POST /api/v1/rendezvous/{name}. It is answered when all members are there, to all at
// once, so that trainer and engines start their initialisation concurrently.
type RendezvousRequest struct {
	// Member names the process; Role is trainer or engine. The trainer is rank 0.
	Member string `json:"member"`
	Role   string `json:"role"`
	// Ranks is how many ranks the member brings (tensor times pipeline parallel); 0 means 1. The trainer brings one.
	Ranks int `json:"ranks"`
	// Engines is how many engines the trainer expects; only the trainer says it. 0 means as many as the run has.
	Engines int `json:"engines,omitempty"`
	// Address that the trainer listens on, host and port; only the trainer says it.
	Address string `json:"address,omitempty"`
	// Backend is nccl or gloo; all members must agree.
	Backend string `json:"backend"`
	// Epoch that the member was in, 0 for a new one and for one whose group broke. A rendezvous is
	// redone under the next epoch whenever its membership changes. A member that names the epoch that
	// still stands is answered with it at once, so that it learns here whether it does.
	Epoch int64 `json:"epoch"`
	// WaitS is how long to wait for the others, at most 60; CodeUnavailable names who is missing after it.
	// With 0 nothing is waited for: the answer is the epoch that stands, or CodeExpired.
	WaitS float64 `json:"wait_s"`
	// Caller is who sent this, which the server fills in. Its role, where it has one, is the one that Role may name.
	Caller Caller `json:"-"`
}

// RendezvousReply is what a member initialises its process group with. The trainer is rank 0;
// engines follow in the order of their names, each with its ranks from RankOffset.
type RendezvousReply struct {
	Epoch         int64    `json:"epoch"`
	MasterAddress string   `json:"master_address"`
	MasterPort    int      `json:"master_port"`
	WorldSize     int      `json:"world_size"`
	RankOffset    int      `json:"rank_offset"`
	Backend       string   `json:"backend"`
	Members       []string `json:"members"`
}
