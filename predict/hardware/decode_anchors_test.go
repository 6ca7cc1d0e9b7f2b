package hardware

import "fmt"

// decodeAnchor is a published decoding speed beside the roofline's with its
// defaults: nothing is fitted.
type decodeAnchor struct {
	// Name says which model on what, with which batch and lengths.
	Name string
	// Published and Ours are generated tokens per second and GPU, prefill's time included.
	Published, Ours float64
	// Limit is what binds a decode step.
	Limit Limit
	// Source with its date.
	Source string
}

// residual is ours over the published speed, less one.
func (a decodeAnchor) residual() float64 { return a.Ours/a.Published - 1 }

const (
	tensorRT = "TensorRT-LLM docs/source/performance.md, v0.6.1, 2023-12"
	deepseek = "DeepSeek-V3/R1 inference system overview, 2025-03-01"
)

// llama2 are the shapes that were measured: Llama 2.
func llama2(name string) Model {
	if name == "llama-2-70b" {
		return llama(32000, 8192, 28672, 80, 64, 8, 128, false).model(name, 68.98e9, tensorRT)
	}
	return llama(32000, 4096, 11008, 32, 32, 32, 128, false).model("llama-2-7b", 6.738e9, tensorRT)
}

// decodeRow is a static batch of equal lengths.
type decodeRow struct {
	model, gpu    string
	gpus, batch   int
	prompt, reply float64
	published     float64
}

// decodeRows are the published batches with an unambiguous unit: per GPU on H100, on one GPU elsewhere.
var decodeRows = []decodeRow{
	{"llama-2-7b", "h100-sxm", 1, 768, 128, 128, 19694},
	{"llama-2-7b", "h100-sxm", 1, 112, 128, 2048, 6818},
	{"llama-2-7b", "h100-sxm", 1, 80, 2048, 128, 2244},
	{"llama-2-7b", "h100-sxm", 1, 48, 2048, 2048, 2740},
	{"llama-2-70b", "h100-sxm", 2, 1024, 128, 128, 2657},
	{"llama-2-70b", "h100-sxm", 4, 480, 128, 2048, 1486},
	{"llama-2-70b", "h100-sxm", 2, 96, 2048, 128, 306},
	{"llama-2-70b", "h100-sxm", 2, 64, 2048, 2048, 547},
	{"llama-2-7b", "l40s", 1, 64, 128, 128, 3240},
	{"llama-2-7b", "l40s", 1, 64, 128, 2048, 1622},
	{"llama-2-7b", "l40s", 1, 32, 2048, 128, 581},
	{"llama-2-7b", "l40s", 1, 16, 2048, 2048, 531},
	{"llama-2-7b", "a100-80-sxm", 1, 384, 128, 128, 5586},
	{"llama-2-7b", "a100-80-sxm", 1, 60, 128, 2048, 1928},
	{"llama-2-7b", "a100-80-sxm", 1, 52, 2048, 128, 591},
}

// anchor computes a row: the batch is read in, then decoded to its end together.
func (row decodeRow) anchor() (decodeAnchor, error) {
	gpu, err := GPUNamed(row.gpu)
	if err != nil {
		return decodeAnchor{}, err
	}
	number := 1.0 // fp8 where there is one, as measured
	if gpu.FP8 == 0 {
		number = 2
	}
	r := Replica{Model: llama2(row.model), GPU: gpu, GPUs: row.gpus, WeightBytes: number, KVBytes: number, PromptTokens: row.prompt, MeanTokens: row.reply}
	if err := r.Validate(); err != nil {
		return decodeAnchor{}, err
	}
	batch := float64(row.batch)
	step := r.Decode(batch)
	seconds := batch*r.PrefillSeconds(row.prompt) + row.reply*step.Seconds
	return decodeAnchor{
		Name:      fmt.Sprintf("%s, %d × %s, batch %d, %.0f + %.0f tokens", row.model, row.gpus, row.gpu, row.batch, row.prompt, row.reply),
		Published: row.published, Ours: batch * row.reply / seconds / float64(row.gpus), Limit: step.Limit, Source: tensorRT,
	}, nil
}

// decodeAnchors computes the published decoding speeds with the defaults.
func decodeAnchors() ([]decodeAnchor, error) {
	anchors := make([]decodeAnchor, 0, len(decodeRows)+1)
	for _, row := range decodeRows {
		a, err := row.anchor()
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", row.model, row.gpu, err)
		}
		anchors = append(anchors, a)
	}
	service, err := deepseekService()
	return append(anchors, service), err
}

// deepseekService is a published service: 18 nodes with experts spread over all,
// 14 800 tokens/s a node at 20 to 22 tokens/s a rollout, which makes its batch.
func deepseekService() (decodeAnchor, error) {
	const perNode, perRollout, context, nodes = 14800.0, 21.0, 4989.0, 18
	m, err := ModelNamed("deepseek-v3")
	if err != nil {
		return decodeAnchor{}, err
	}
	gpu, err := GPUNamed("h800-sxm")
	if err != nil {
		return decodeAnchor{}, err
	}
	r := Replica{Model: m, GPU: gpu, GPUs: nodes * gpu.NodeGPUs, WeightBytes: 1, PromptTokens: context - 1, MeanTokens: 2}
	step := r.Decode(perNode * nodes / perRollout)
	return decodeAnchor{Name: "deepseek-v3, 144 × h800-sxm, experts spread, context 4989", Published: perNode / float64(gpu.NodeGPUs),
		Ours: step.TokensPerSAndGPU, Limit: step.Limit, Source: deepseek}, nil
}
