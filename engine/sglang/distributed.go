package sglang

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headway-rl/headway/engine/upstream"
)

// Paths of updates in a collective.
const (
	pathInitGroup    = "/init_weights_update_group"
	pathDestroyGroup = "/destroy_weights_update_group"
	pathDistributed  = "/update_weights_from_distributed"
	pathBegin        = "/begin_weight_update"
	pathEnd          = "/end_weight_update"
)

// bucketBytes bounds the tensors of one request: a server makes room for all of them before it
// receives the first, beside the weights that it has.
const bucketBytes = 512 << 20

// Join implements [upstream.Joiner]: its ranks follow each other from the group's offset.
func (*Dialect) Join(ctx context.Context, s *upstream.Server, g upstream.Group, _ *upstream.Capabilities) error {
	return succeed(ctx, s, pathInitGroup, map[string]any{
		"master_address": g.Address, "master_port": g.Port, "rank_offset": g.RankOffset, "world_size": g.WorldSize,
		"group_name": g.Name, "backend": g.Backend,
	})
}

// Part implements [upstream.Joiner].
func (*Dialect) Part(ctx context.Context, s *upstream.Server, g upstream.Group, _ *upstream.Capabilities) error {
	err := succeed(ctx, s, pathDestroyGroup, map[string]any{"group_name": g.Name})
	if err != nil && slices.ContainsFunc(noSuchGroup, func(words string) bool { return strings.Contains(err.Error(), words) }) {
		return nil
	}
	return err
}

// noSuchGroup are the words by which servers say that they are not in a group: SGLang's, and those of the
// server on the CPU that stands for it. They have no code for it.
var noSuchGroup = []string{"group to be destroyed does not exist", "there is no group "}

// updateDistributed has the server receive the tensors. A server that has sessions takes tensors only
// between their begin and their end. A failed update ends its session too, where the server still answers.
func updateDistributed(ctx context.Context, s *upstream.Server, u upstream.Update, session bool) error {
	if !session {
		return receive(ctx, s, u)
	}
	if err := begin(ctx, s); err != nil {
		return err
	}
	err := receive(ctx, s, u)
	if err != nil && ctx.Err() != nil {
		return err // the next begin ends what is left open
	}
	return errors.Join(err, succeed(ctx, s, pathEnd, map[string]any{}))
}

// begin opens a session of all runners. A session that a process before this one left open is ended first.
func begin(ctx context.Context, s *upstream.Server) error {
	body := map[string]any{"selector": "all"}
	err := succeed(ctx, s, pathBegin, body)
	if err == nil || !strings.Contains(err.Error(), sessionOpen) {
		return err
	}
	if err := succeed(ctx, s, pathEnd, map[string]any{}); err != nil {
		return err
	}
	return succeed(ctx, s, pathBegin, body)
}

// sessionOpen is a part of the words by which SGLang refuses a second session. It has no code for it.
const sessionOpen = "already open"

// receive has the server receive the tensors bucket by bucket. The label comes with the last one, and so
// does the flush: until then the server serves neither version.
func receive(ctx context.Context, s *upstream.Server, u upstream.Update) error {
	left := u.Tensors
	for len(left) > 0 {
		n, err := bucket(left)
		if err != nil {
			return err
		}
		names, dtypes, shapes := make([]string, n), make([]string, n), make([][]int64, n)
		for i, t := range left[:n] {
			names[i], dtypes[i], shapes[i] = t.Name, t.DType, t.Shape
			if t.Shape == nil {
				shapes[i] = []int64{}
			}
		}
		body := map[string]any{
			"names": names, "dtypes": dtypes, "shapes": shapes, "group_name": u.Group.Name,
			"flush_cache": false, "abort_all_requests": false,
		}
		if left = left[n:]; len(left) == 0 {
			body["flush_cache"], body["weight_version"] = u.Cache == upstream.CacheFlush, u.Label
		}
		if err := succeed(ctx, s, pathDistributed, body); err != nil {
			return err
		}
	}
	return nil
}

// bucket is how many of some tensors go into one request, at least one.
func bucket(tensors []upstream.Tensor) (int, error) {
	bytes := int64(0)
	for i, t := range tensors {
		size, ok := dtypeBytes[t.DType]
		if !ok {
			return 0, fmt.Errorf("tensor %s is of the type %q: want one of torch's for weights, such as bfloat16", t.Name, t.DType)
		}
		for _, n := range t.Shape {
			size *= n
		}
		if bytes += size; bytes > bucketBytes && i > 0 {
			return i, nil
		}
	}
	return len(tensors), nil
}

// dtypeBytes are the sizes of torch's types that weights have.
var dtypeBytes = map[string]int64{
	"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
	"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}

// succeed posts what a server answers by whether it succeeded.
func succeed(ctx context.Context, s *upstream.Server, path string, body any) error {
	var reply struct {
		Success *bool  `json:"success"`
		Message string `json:"message"`
	}
	if err := s.Call(ctx, http.MethodPost, path, body, &reply); err != nil {
		return err
	}
	if reply.Success == nil || !*reply.Success {
		return fmt.Errorf("%s did not succeed: %s", path, upstream.Said(strings.TrimSpace(reply.Message)))
	}
	return nil
}
