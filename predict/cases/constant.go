package cases

import "math"

// Constant is a figure that no data sheet has: a guess from physics, and how sure it is.
type Constant struct {
	// Name of it, and What it is, with its unit.
	Name, What string
	// Prior is the guess before any row, and Spread its standard deviation, of the logarithm.
	Prior, Spread float64
	// Differs is how much it differs between two families of runs, for their software: the standard deviation of the
	// logarithm. A calibration on rows of one family moves it for that family.
	Differs float64
}

// The constants, by their place in a vector.
const (
	decodeBandwidth = iota
	decodeStep
	decodeLayer
	nearExchange
	farExchange
	expertLayer
	prefillUse
	denseUse
	expertUse
	shardedUse
	attentionUse
	trafficUse
	logitSeconds
	denseLayer
	layerStart
	localExpert
	armHost
	sharedSwitch
	syncStart
	syncTensor
	wholeRate
	syncRate
	hostRate
	exportRate
	lengthSpread
	constants
)

// table of the constants. Priors are of published kernels and of hardware; no row of a table made them.
var table = [constants]Constant{
	decodeBandwidth: {"decode_bandwidth", "share of a GPU's memory bandwidth that decoding reaches", 0.7, 0.1, 0.05},
	decodeStep:      {"decode_step_s", "seconds of a decode step that do not grow with the model: scheduling, sampling", 0.004, 0.4, 0.3},
	decodeLayer:     {"decode_layer_s", "seconds of a layer's launches in a decode step", 0.00005, 0.6, 0.3},
	nearExchange:    {"near_exchange_s", "seconds of one exchange of a tensor-parallel layer inside a node", 0.00002, 0.5, 0.2},
	farExchange:     {"far_exchange_s", "the same between nodes", 0.00008, 0.5, 0.2},
	expertLayer:     {"expert_layer_s", "seconds that an expert-parallel layer adds to a decode step", 0.0004, 0.7, 0.5},
	prefillUse:      {"prefill_use", "share of peak FLOP/s in prefill", 0.5, 0.2, 0.1},
	denseUse:        {"dense_use", "share of peak FLOP/s that the matrices of a dense model's training reach, Megatron", 0.65, 0.2, 0.15},
	expertUse:       {"expert_use", "the same of routed experts", 0.35, 0.4, 0.2},
	shardedUse:      {"sharded_use", "the same under FSDP", 0.45, 0.35, 0.2},
	attentionUse:    {"attention_use", "the same of attention over the context, forward and backward", 0.55, 0.2, 0.15},
	trafficUse:      {"traffic_use", "share of memory bandwidth at which passes write and read activations beside their matrices", 0.4, 0.3, 0.15},
	logitSeconds:    {"logit_s", "seconds of one logit of one token in a pass beside its matrix: softmax, entropy and their gradients", 3e-11, 0.6, 0.3},
	denseLayer:      {"dense_layer_s", "seconds of a dense layer's launches in one pass of one micro-batch", 0.0004, 0.7, 0.2},
	layerStart:      {"layer_start_s", "seconds of an expert layer's launches and exchanges in one pass of one micro-batch", 0.001, 0.6, 0.3},
	localExpert:     {"local_expert_s", "seconds that each expert on a GPU adds to that", 0.00015, 0.6, 0.3},
	armHost:         {"arm_host", "times as long as elsewhere that launches of expert layers take on Grace hosts", 1.4, 0.25, 0.1},
	exportRate:      {"export_rate", "bytes of weights a second that a trainer alone writes for its engines after an update", 3e9, 0.35, 0.3},
	sharedSwitch:    {"shared_switch_s", "seconds to hand shared GPUs from training to rollouts and back", 10, 0.6, 0.4},
	syncStart:       {"sync_start_s", "seconds of a sync between separate GPUs however little it sends", 1, 0.7, 0.5},
	syncTensor:      {"sync_tensor_s", "seconds of one tensor that is gathered and sent whole", 0.0005, 0.7, 0.4},
	wholeRate:       {"whole_rate", "bytes a second at which tensors that are gathered whole reach every node", 1e11, 0.5, 0.3},
	syncRate:        {"sync_rate", "bytes a second into one GPU where shards go to shards", 25e9, 0.5, 0.3},
	hostRate:        {"host_rate", "bytes a second of a node's optimizer in host memory", 50e9, 0.5, 0.3},
	lengthSpread:    {"length_spread", "standard deviation of the logarithm of lengths before the cap", 0.8, 0.3, 0.3},
}

// priors are the constants before any row.
func priors() [constants]float64 {
	var v [constants]float64
	for i, c := range table {
		v[i] = c.Prior
	}
	return v
}

// moved are constants with each logarithm moved.
func moved(at [constants]float64, by []float64) [constants]float64 {
	for i, d := range by {
		at[i] *= math.Exp(d)
	}
	return at
}
