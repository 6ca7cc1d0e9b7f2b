package hardware

import (
	"cmp"
	"fmt"
	"math"
)

// Limit names what bounds a figure.
type Limit string

// The limits of a decode step and of the slots that fit.
const (
	LimitBandwidth Limit = "bandwidth" // reading weights and cache
	LimitCompute   Limit = "compute"   // multiplying
	LimitLink      Limit = "link"      // what tensor parallelism exchanges
	LimitOverhead  Limit = "overhead"  // the part of a step no roofline explains
	LimitMemory    Limit = "memory"    // the cache does not fit that many rollouts
)

// Replica is one engine: a model on whole GPUs. Zero efficiencies take the
// defaults of [Replica.WithDefaults]; every method applies them itself.
type Replica struct {
	Model Model
	GPU   GPU
	// GPUs the model is spread over evenly, by tensor or expert parallelism; a dense model beyond a node by a pipeline of nodes. 0 means 1.
	GPUs int
	// WeightBytes is the bytes of a parameter: 2 for bf16, 1 for fp8, about 0.53 for mxfp4. Default 2.
	WeightBytes float64
	// KVBytes is the bytes of a number in the cache. Default 2.
	KVBytes float64
	// MemoryUse is the share of the memory that weights, cache and activations may take. Default 0.9.
	MemoryUse float64
	// ActivationBytes is what a GPU keeps for activations and captured graphs. Default 2 GiB.
	ActivationBytes float64
	// BandwidthUse is the share of peak memory bandwidth that decoding reaches. Default 0.7.
	BandwidthUse float64
	// ComputeUse is the share of peak FLOP/s that decoding reaches where it is bound by compute. Default 0.6.
	ComputeUse float64
	// PrefillUse is that share for prefill. Default 0.5.
	PrefillUse float64
	// StepOverheadS is the part of a decode step no roofline explains: launches, sampling, scheduling, exchanges' latency. Negative means none. Default 0.003.
	StepOverheadS float64
	// LayerS is the time of a layer's launches in a decode step, in seconds. ExchangeS is that of each of its two
	// exchanges where GPUs split it, however small. The value 0 leaves them to StepOverheadS.
	LayerS, ExchangeS float64
	// ExpertS is what each layer with experts adds where GPUs share them; in seconds. 0 for none.
	ExpertS float64
	// HeadsRepeated says that tensor-parallel GPUs beyond the KV heads each hold a copy of one. The value false spreads
	// the cache evenly, as data-parallel attention does.
	HeadsRepeated bool
	// Scale multiplies every decode step: the factor that a measurement found beyond the roofline ([Replica.Measured]).
	// Default 1.
	Scale float64

	// filled says that a pipeline's stages all work at once, on rollouts of their own: what no speed exceeds.
	filled bool

	// PromptTokens is the mean context before the first generated token.
	PromptTokens float64
	// MeanTokens is E[L], the capped mean response.
	MeanTokens float64
	// MeanSquareTokens is E[L²] of the capped response; 0 means E[L]², every length alike.
	MeanSquareTokens float64
}

// WithDefaults returns a copy with every unset efficiency filled in.
func (r Replica) WithDefaults() Replica {
	for _, d := range []struct {
		field *float64
		value float64
	}{
		{&r.WeightBytes, 2}, {&r.KVBytes, 2}, {&r.MemoryUse, 0.9}, {&r.ActivationBytes, 2 * gib}, {&r.BandwidthUse, 0.7},
		{&r.ComputeUse, 0.6}, {&r.PrefillUse, 0.5}, {&r.StepOverheadS, 0.003}, {&r.Scale, 1},
	} {
		*d.field = cmp.Or(*d.field, d.value)
	}
	r.GPUs = cmp.Or(r.GPUs, 1)
	return r
}

// Validate says what is wrong with a replica.
func (r Replica) Validate() error {
	if err := r.Model.Validate(); err != nil {
		return err
	}
	if err := r.GPU.Validate(); err != nil {
		return err
	}
	if r.GPUs < 0 || r.GPUs > 1e6 {
		return fmt.Errorf("replica: %d GPUs: expected 1 to 1000000", r.GPUs)
	}
	r = r.WithDefaults()
	for _, use := range []struct {
		what  string
		value float64
	}{{"memory use", r.MemoryUse}, {"bandwidth use", r.BandwidthUse}, {"compute use", r.ComputeUse}, {"prefill use", r.PrefillUse}} {
		if err := share("replica", use.what, use.value); err != nil {
			return err
		}
	}
	for _, amount := range []struct {
		what        string
		value, most float64
	}{
		{"bytes of a weight", r.WeightBytes, 8}, {"bytes of a cached number", r.KVBytes, 8}, {"scale of a decode step", r.Scale, 1e6},
		{"mean response in tokens", r.MeanTokens, 1e8},
	} {
		if err := positive("replica", amount.what, amount.value, amount.most); err != nil {
			return err
		}
	}
	return r.validateLengths()
}

// validateLengths checks what sizes the cache.
func (r Replica) validateLengths() error {
	switch {
	case !(r.StepOverheadS <= 10):
		return fmt.Errorf("replica: a decode step's overhead is %g s: expected at most 10", r.StepOverheadS)
	case !(r.PromptTokens >= 0) || r.PromptTokens > 1e8:
		return fmt.Errorf("replica: mean prompt is %g tokens: expected 0 to 1e8", r.PromptTokens)
	case math.IsNaN(r.MeanSquareTokens) || (r.MeanSquareTokens != 0 && r.MeanSquareTokens < r.MeanTokens*r.MeanTokens*(1-1e-9)):
		return fmt.Errorf("replica: E[L²] is %g with E[L] = %g: a mean square is never below the squared mean; give both of the same capped lengths", r.MeanSquareTokens, r.MeanTokens)
	case !(r.ActivationBytes >= 0) || r.ActivationBytes > 1e13:
		return fmt.Errorf("replica: %g bytes of activations: expected 0 to 1e13", r.ActivationBytes)
	}
	return nil
}

// ResidentTokens is the mean context a running rollout holds, in tokens: prompt +
// E[L²]/(2E[L]), not prompt + E[L]/2. A rollout that is seen running is more
// likely a long one (renewal theory's inspection).
func (r Replica) ResidentTokens() float64 {
	if r.MeanTokens <= 0 {
		return r.PromptTokens
	}
	return r.PromptTokens + math.Max(r.MeanSquareTokens, r.MeanTokens*r.MeanTokens)/(2*r.MeanTokens)
}

// CacheRoomBytes is the memory left for cache on all GPUs of the replica;
// negative where the weights alone do not fit.
func (r Replica) CacheRoomBytes() float64 {
	r = r.WithDefaults()
	return float64(r.GPUs)*(r.GPU.MemoryBytes*r.MemoryUse-r.ActivationBytes) - r.Model.WeightBytes(r.WeightBytes)
}

// Slots is how many rollouts fit into the cache at once, at their mean resident
// context, and an error where not one does. Grouped-query caches are spread over
// GPUs up to the number of KV heads. Beyond, and for latent attention across
// tensor-parallel GPUs, engines repeat them. That counts with HeadsRepeated:
// engines can avoid it by data-parallel attention.
func (r Replica) Slots() (int, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	r = r.WithDefaults()
	room := r.CacheRoomBytes() / r.copies()
	weights := r.Model.WeightBytes(r.WeightBytes)
	if room <= 0 {
		return 0, fmt.Errorf("replica of %d × %s: the weights take %.1f GB of %.1f GB usable: use more GPUs (at least %d), or fewer bytes a weight",
			r.GPUs, r.GPU.Name, weights/1e9, (room+weights)/1e9, r.fewestForWeights())
	}
	slots := math.Floor(room / r.Model.CacheBytes(r.ResidentTokens(), r.KVBytes))
	if slots < 1 {
		return 0, fmt.Errorf("replica of %d × %s: %.1f GB are left for cache, and one rollout of %.0f tokens takes %.1f GB. Use more GPUs, a lower cap, or fewer bytes a cached number",
			r.GPUs, r.GPU.Name, room/1e9, r.ResidentTokens(), r.Model.CacheBytes(r.ResidentTokens(), r.KVBytes)/1e9)
	}
	return int(math.Min(slots, 1e9)), nil
}

// fewestForWeights is the fewest GPUs whose usable memory exceeds the weights.
func (r Replica) fewestForWeights() int {
	usable := r.GPU.MemoryBytes*r.MemoryUse - r.ActivationBytes
	if usable <= 0 {
		return 0
	}
	return int(math.Floor(r.Model.WeightBytes(r.WeightBytes)/usable)) + 1
}

// SmallestReplica returns the replica with the fewest GPUs whose cache holds at
// least so many rollouts. The count is a power of two up to a node, and whole
// nodes beyond.
func SmallestReplica(r Replica, slots int) (Replica, error) {
	r = r.WithDefaults()
	var last error
	for gpus := 1; gpus <= 4096; gpus = next(gpus, r.GPU.NodeGPUs) {
		r.GPUs = gpus
		n, err := r.Slots()
		if err == nil && n >= max(slots, 1) {
			return r, nil
		}
		if err := r.Validate(); err != nil {
			return Replica{}, err
		}
		last = err
		if err == nil {
			last = fmt.Errorf("replica of %d × %s holds %d rollouts, and %d are wanted", gpus, r.GPU.Name, n, slots)
		}
	}
	return Replica{}, fmt.Errorf("no replica of up to 4096 GPUs is large enough: %w", last)
}

// ReplicaSizes lists sizes of a replica from the least useful one: powers of two up to
// a node. From a least one beyond a node they are whole nodes, up to twice as many.
func ReplicaSizes(gpu GPU, least int) []int {
	sizes := []int{least}
	node := max(gpu.NodeGPUs, 1)
	most := node
	if least > node {
		most = 2 * least
	}
	for gpus := next(least, node); gpus <= most && gpus > least; gpus = next(gpus, node) {
		sizes = append(sizes, gpus)
	}
	return sizes
}

// next is the size to try after one: doubled inside a node, a node more outside.
func next(gpus, node int) int {
	if node <= 1 || gpus < node {
		return 2 * gpus
	}
	return gpus + node
}

// Decode is one decode step of a replica, in seconds, by what takes the time.
type Decode struct {
	Seconds                         float64 // the step: max(Weights+Cache, Compute) + Link + Overhead, scaled
	Weights, Cache                  float64 // reading them
	Compute                         float64 // multiplying
	Link, Overhead                  float64 // exchanging activations; the rest
	Limit                           Limit   // the largest part; memory where the cache does not hold so many
	TokensPerS, TokensPerSAndSlot   float64 // of the replica; of one rollout
	TokensPerSAndGPU, ResidentBytes float64 // of one GPU; the cache then held
}

// Decode predicts the step in which so many rollouts each get a token, at their
// mean resident context:
//
//	max((weights read + Σ cache read)/bandwidth, 2·N_active·b/FLOPs) + link + t₀
//
// The roofline is optimistic without calibrated efficiencies. Fewer than one
// rollout is priced as one.
func (r Replica) Decode(active float64) Decode {
	r = r.WithDefaults()
	b := math.Max(active, 1)
	n, together := float64(r.GPUs), r.together()
	bandwidth := together * r.GPU.MemoryBytesPerS * r.BandwidthUse
	context := r.ResidentTokens()
	d := Decode{Overhead: (r.overhead() + r.layersS()) * r.Scale}
	d.ResidentBytes = b * r.Model.CacheBytes(context, r.KVBytes)
	d.Weights = r.Scale * r.Model.ReadParameters(b) * r.WeightBytes / bandwidth
	d.Cache = r.Scale * d.ResidentBytes * r.copies() / bandwidth
	d.Compute = r.Scale * 2 * r.Model.multiplied() * b / (together * r.GPU.FLOPs(r.WeightBytes) * r.ComputeUse)
	d.Link = r.Scale * r.linkSeconds(b)
	d.Seconds = math.Max(d.Weights+d.Cache, d.Compute) + d.Link + d.Overhead
	d.TokensPerS = b / d.Seconds
	d.TokensPerSAndSlot = 1 / d.Seconds
	d.TokensPerSAndGPU = d.TokensPerS / n
	d.Limit = d.limit()
	if d.ResidentBytes*r.copies() > r.CacheRoomBytes() {
		d.Limit = LimitMemory
	}
	return d
}

// together is how many GPUs work on a step at the same time: all of them, but one
// node's of a dense model that is pipelined over several, whose stages follow one
// another. Its cache is spread over all ([Replica.CacheRoomBytes]).
func (r Replica) together() float64 {
	if r.filled {
		return float64(r.GPUs)
	}
	return float64(r.SplitsLayers())
}

// overhead is t₀: none where it is given as negative, so that unset can mean the default.
func (r Replica) overhead() float64 { return math.Max(r.StepOverheadS, 0) }

// layersS is what layers add beyond the roofline.
func (r Replica) layersS() float64 {
	layers := float64(r.Model.Layers)
	t := layers * r.LayerS
	if r.GPUs > 1 {
		t += 2 * layers * r.ExchangeS
		if r.Model.Experts > 0 {
			t += (layers - float64(r.Model.Architecture.DenseLayers)) * r.ExpertS
		}
	}
	return t
}

// copies is how often the replica holds each cached number.
func (r Replica) copies() float64 {
	if !r.HeadsRepeated || r.Model.KVHeads < 1 {
		return 1
	}
	return math.Max(float64(r.SplitsLayers())/float64(r.Model.KVHeads), 1)
}

// SplitsLayers is how many GPUs split a layer: all of them, but one node's of a dense model that is pipelined over
// several.
func (r Replica) SplitsLayers() int {
	if r.Model.Experts == 0 {
		return min(max(r.GPUs, 1), max(r.GPU.NodeGPUs, 1))
	}
	return max(r.GPUs, 1)
}

// Splits reports whether engines can split the model's layers over the replica's GPUs. Each GPU gets as many whole
// heads, and whole key-value heads or one copy, as vLLM and SGLang demand. A mixture of experts can take data-parallel
// attention instead, and of a model without an architecture the heads are unknown: both split over any number.
func (r Replica) Splits() bool {
	heads, keys, n := r.Model.Architecture.Heads, r.Model.KVHeads, r.SplitsLayers()
	if r.Model.Experts > 0 || heads < 1 || keys < 1 {
		return true
	}
	return heads%n == 0 && (keys%n == 0 || n%keys == 0)
}

// limit names the largest part of a step.
func (d Decode) limit() Limit {
	limit, most := LimitBandwidth, d.Weights+d.Cache
	for _, other := range []struct {
		limit Limit
		value float64
	}{{LimitCompute, d.Compute}, {LimitLink, d.Link}, {LimitOverhead, d.Overhead}} {
		if other.value > most {
			limit, most = other.limit, other.value
		}
	}
	return limit
}

// linkSeconds is what GPUs of a replica exchange in a step; latency is part of
// the overhead. Inside a node tensor parallelism sums b·hidden numbers in bf16
// twice a layer, by ring. Beyond a node a mixture of experts is spread by expert,
// each GPU keeping its own rollouts: a layer sends each of them to its experts in
// fp8 and back in bf16, over the GPU's network card, for the share that is remote;
// a dense model is pipelined between nodes, whose stages exchange next to nothing
// ([Replica.together] has what it costs them to take turns).
func (r Replica) linkSeconds(b float64) float64 {
	if r.GPUs <= 1 {
		return 0
	}
	n, node := float64(r.GPUs), float64(max(r.GPU.NodeGPUs, 1))
	layers, hidden := float64(r.Model.Layers), float64(r.Model.Hidden)
	if n > node && r.Model.Experts > 0 && r.GPU.NICBytesPerS > 0 {
		remote := 1 - node/n
		return layers * b / n * float64(r.Model.ExpertsPerToken) * remote * hidden * 3 / r.GPU.NICBytesPerS
	}
	n = math.Min(n, node)
	return 2 * layers * 2 * (n - 1) / n * b * hidden * 2 / r.GPU.LinkBytesPerS
}

// SlotSpeed is the tokens per second of one rollout while so many run on the replica.
func (r Replica) SlotSpeed(active float64) float64 { return r.Decode(active).TokensPerSAndSlot }

// PrefillSeconds is the time to compute the cache of so many tokens, alone on
// the replica: 2·N_active·tokens/FLOPs, plus attention's half square.
func (r Replica) PrefillSeconds(tokens float64) float64 {
	if tokens <= 0 {
		return 0
	}
	r = r.WithDefaults()
	attention := r.Model.attention(tokens) * tokens
	flops := 2*r.Model.multiplied()*tokens + attention
	return r.Scale * flops / (float64(r.GPUs) * r.GPU.FLOPs(r.WeightBytes) * r.PrefillUse)
}

// Measured returns the replica scaled to a measured decode speed. The speed is in
// tokens per second, in all, with so many rollouts running.
func (r Replica) Measured(active, tokensPerS float64) (Replica, error) {
	if err := r.Validate(); err != nil {
		return Replica{}, err
	}
	if err := positive("measured decoding", "rollouts at once", active, 1e9); err != nil {
		return Replica{}, err
	}
	if err := positive("measured decoding", "tokens/s", tokensPerS, 1e12); err != nil {
		return Replica{}, err
	}
	r = r.WithDefaults()
	r.Scale = 1
	at := r.Decode(active)
	r.Scale = at.TokensPerS / tokensPerS
	return r, r.plausible(active, tokensPerS)
}

// plausible refuses a measured speed that the device cannot reach, or that is
// so far below the roofline that the numbers are not of this set-up.
func (r Replica) plausible(active, tokensPerS float64) error {
	ideal := r
	ideal.BandwidthUse, ideal.ComputeUse, ideal.StepOverheadS, ideal.Scale, ideal.filled = 1, 1, -1, 1, true
	ideal.LayerS, ideal.ExchangeS, ideal.ExpertS, ideal.HeadsRepeated = 0, 0, 0, false
	most := ideal.Decode(active).TokensPerS
	switch {
	case tokensPerS > most*1.05:
		return fmt.Errorf("measured decoding: %.4g tokens/s with %.0f rollouts at once is more than the %.4g that %d × %s can reach with %s. It must be one replica's without cached prompts; check GPUs, bytes a weight and context (%.0f tokens)",
			tokensPerS, active, most, r.GPUs, r.GPU.Name, r.Model.label(), r.ResidentTokens())
	case tokensPerS < most/1000:
		return fmt.Errorf("measured decoding: %.4g tokens/s with %.0f rollouts at once is less than a thousandth of the %.4g that %d × %s could reach with %s. Check units (tokens, seconds) and GPUs",
			tokensPerS, active, most, r.GPUs, r.GPU.Name, r.Model.label())
	}
	return nil
}
