package sglang

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// Paths of a server's load, the newer first.
const (
	pathLoads   = "/v1/loads"
	pathGetLoad = "/get_load"
)

// rankLoad is how busy one data-parallel rank is. Older servers count running and waiting requests together.
type rankLoad struct {
	Running  *int    `json:"num_running_reqs"`
	Waiting  int     `json:"num_waiting_reqs"`
	Together int     `json:"num_reqs"`
	Usage    float64 `json:"token_usage"`
}

// Load implements [upstream.Dialect]: the sum over all ranks, the cache's share of the fullest.
func (*Dialect) Load(ctx context.Context, s *upstream.Server, caps *upstream.Capabilities) (upstream.Load, error) {
	path := learnt(caps).load
	if path == "" {
		return upstream.Load{Running: -1, Waiting: -1}, nil
	}
	var reply json.RawMessage
	if err := s.Call(ctx, http.MethodGet, path, nil, &reply); err != nil {
		return upstream.Load{}, err
	}
	ranks, err := readLoads(reply)
	if err != nil {
		return upstream.Load{}, fmt.Errorf("%s: %w", path, err)
	}
	return sum(ranks), nil
}

// sum adds ranks up.
func sum(ranks []rankLoad) upstream.Load {
	var all upstream.Load
	for _, r := range ranks {
		running := max(r.Together-r.Waiting, 0)
		if r.Running != nil {
			running = *r.Running
		}
		all.Running += running
		all.Waiting += r.Waiting
		all.Cache = max(all.Cache, r.Usage)
	}
	return all
}

// readLoads reads a list of ranks, an object that has it under loads, or one rank alone.
func readLoads(reply json.RawMessage) ([]rankLoad, error) {
	var ranks []rankLoad
	if json.Unmarshal(reply, &ranks) == nil {
		return ranks, nil
	}
	var wrapped struct {
		Loads []rankLoad `json:"loads"`
		rankLoad
	}
	if err := json.Unmarshal(reply, &wrapped); err != nil {
		return nil, fmt.Errorf("a load that is not understood: %w: %.200q", err, reply)
	}
	if wrapped.Loads != nil {
		return wrapped.Loads, nil
	}
	return []rankLoad{wrapped.rankLoad}, nil
}
