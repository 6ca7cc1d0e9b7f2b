package hardware

import "fmt"

// anchor is a published time of a weight sync beside ours.
type anchor struct {
	// Name says what was synced over what.
	Name string
	// Published and Ours are seconds; where a range was published, its middle.
	Published, Ours float64
	// Calibrated says that a constant was fitted to this very row.
	Calibrated bool
	// Assumed says what the publication leaves open, or what was fitted.
	Assumed string
	// Source with its date.
	Source string
}

// residual is ours over the published time, less one.
func (a anchor) residual() float64 { return a.Ours/a.Published - 1 }

// anchorRow is what an anchor is computed from.
type anchorRow struct {
	name, model string
	published   float64
	calibrated  bool
	assumed     string
	source      string
	sync        Sync
}

const (
	checkpointEngine = "MoonshotAI checkpoint-engine README (vLLM 0.10.2), 2025"
	verlEngines      = "verl checkpoint_engine README, 2026"
	verlDelta        = "verl docs/advance/delta_weight_sync.md, 2026-07-10"
)

// h800 and h20 are checkpoint-engine's roads: weights come from host memory at
// 50 GB/s a GPU, eight a node, and are broadcast over NVLink or over the network.
func h800(wire, bucket float64) Sync {
	return Sync{WireBytes: wire, TrainBytes: wire, BucketBytes: bucket * gib, Replicas: 1, ReplicaGPUs: 8, Fanout: FanoutChain,
		NetworkBytesPerS: 200e9, NetworkUse: 0.8, StagingBytesPerS: 800e9}
}

// h20 has a node's network at the rate that the first H20 row gives.
func h20(nodes int, bucket float64) Sync {
	return Sync{WireBytes: 1, TrainBytes: 1, BucketBytes: bucket * gib, Replicas: nodes, ReplicaGPUs: 16, Fanout: FanoutTree,
		NetworkBytesPerS: 100e9, NetworkUse: 1, StagingBytesPerS: 1600e9}
}

// verlBroadcast is verl's full broadcast of a dense model: gathered to one rank, staged, broadcast, loaded.
func verlBroadcast(gather, replicas int) Sync {
	return Sync{GatherGPUs: gather, BucketBytes: 2 * gib, Replicas: replicas, Fanout: FanoutTree, StagingBytesPerS: 12e9}
}

// anchorRows lists the published times.
var anchorRows = []anchorRow{
	{"GLM-4.5-Air bf16, 8 × H800", "glm-4.5-air", 3.47, true, "setup and latency of a tensor fitted to the two H800 rows", checkpointEngine, h800(2, 3.02)},
	{"Qwen3-235B bf16, 8 × H800", "qwen3-235b-a22b", 6.22, true, "as above", checkpointEngine, h800(2, 2.67)},
	{"DeepSeek-V3.1 fp8, 16 × H20", "deepseek-v3", 10.19, true, "a node's network fitted: 100 GB/s", checkpointEngine, h20(2, 5.39)},
	{"Kimi-K2 fp8, 16 × H20", "kimi-k2", 14.36, false, "network of the row above", checkpointEngine, h20(2, 5.89)},
	{"DeepSeek-V3.1 fp8, 256 × H20", "deepseek-v3", 11.33, false, "network of the row above", checkpointEngine, h20(32, 8)},
	{"Kimi-K2 fp8, 256 × H20", "kimi-k2", 16.04, false, "network of the row above", checkpointEngine, h20(32, 8)},
	{"Kimi-K2 bf16 to fp8, 256 to 128 GPUs, direct writes", "kimi-k2", 1.3, false, "8 replicas of 16 GPUs, one 400 Gb/s card each, no setup", "Perplexity, weight transfer in under 2 seconds, 2025-09",
		Sync{WireBytes: 1, Fanout: FanoutDirect, Senders: 256, Receivers: 16, Replicas: 8, ReplicaGPUs: 16, LoadSetupS: -1}},
	{"Qwen3-30B-A3B bf16 over NCCL, 4 × 8 H100", "qwen3-30b-a3b", 7, true, "latency of gathering a tensor fitted; 2 train GPUs to 30, received but not loaded", verlEngines,
		Sync{GatherGPUs: 2, BucketBytes: 2 * gib, Replicas: 30, ReplicaGPUs: 1, Fanout: FanoutTree, LoadSetupS: -1}},
	{"Qwen2.5-32B bf16, 2 + 2 nodes H100", "qwen2.5-32b", 14.2, true, "staging at rank 0 fitted: 12 GB/s", verlDelta, verlBroadcast(16, 2)},
	{"Qwen2.5-72B bf16, 4 + 4 nodes H100", "qwen2.5-72b", 28.8, false, "staging of the row above", verlDelta, verlBroadcast(32, 4)},
	{"Qwen3-30B-A3B bf16, expert-parallel trainer, 1 + 1 nodes", "qwen3-30b-a3b", 32.2, false, "staging as above; experts are put together one by one, which is not modelled", verlDelta, verlBroadcast(8, 1)},
	{"Qwen3-30B-A3B delta, 1 + 1 nodes", "qwen3-30b-a3b", 7.1, false, "1 % of parameters changed, six bytes each; finding and applying the change is not modelled", verlDelta,
		Sync{DeltaShare: 0.03, BucketBytes: 2 * gib, StagingBytesPerS: 12e9}},
}

// anchors computes the published times of weight syncs with this model.
func anchors() ([]anchor, error) {
	anchors := make([]anchor, 0, len(anchorRows))
	for _, row := range anchorRows {
		m, err := ModelNamed(row.model)
		if err != nil {
			return nil, err
		}
		s := row.sync
		s.Parameters, s.Tensors = m.Parameters, m.Tensors()
		times, err := s.Times()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		anchors = append(anchors, anchor{Name: row.name, Published: row.published, Ours: times.Seconds,
			Calibrated: row.calibrated, Assumed: row.assumed, Source: row.source})
	}
	return anchors, nil
}
