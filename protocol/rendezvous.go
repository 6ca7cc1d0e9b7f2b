package protocol

// RendezvousRequest joins a collective over which weights go from trainer to engines:
// POST /api/v1/rendezvous/{name}. It is answered when all members are there, to all at
// once, so that trainer and engines start their initialisation concurrently.
type RendezvousRequest struct {
	// Member names the process; Role is trainer or engine. The trainer is rank 0.
	Member string `json:"member"`
	Role   string `json:"role"`
	// Ranks is how many ranks the member brings (tensor times pipeline parallel); 0 means 1.
	Ranks int `json:"ranks"`
	// Address that the trainer listens on, host and port; only the trainer says it.
	Address string `json:"address,omitempty"`
	// Backend is nccl or gloo; all members must agree.
	Backend string `json:"backend"`
	// Epoch that the member was in, 0 for a new one. A rendezvous is redone under the next epoch
	// whenever its membership changes.
	Epoch int64   `json:"epoch"`
	WaitS float64 `json:"wait_s"`
}

// RendezvousReply is what a member initialises its process group with.
type RendezvousReply struct {
	Epoch         int64    `json:"epoch"`
	MasterAddress string   `json:"master_address"`
	MasterPort    int      `json:"master_port"`
	WorldSize     int      `json:"world_size"`
	RankOffset    int      `json:"rank_offset"`
	Backend       string   `json:"backend"`
	Members       []string `json:"members"`
}
