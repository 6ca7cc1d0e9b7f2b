package hardware

// Families of presets differ in few numbers; each builder fills in the rest.

// qwen25 is Qwen2.5's block: biased query, key and value projections.
func qwen25(hidden, inner, layers, heads, kvHeads, headDim int, tied bool) Architecture {
	vocabulary := 152064
	if tied {
		vocabulary = 151936
	}
	return Architecture{Vocabulary: vocabulary, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: headDim,
		Intermediate: inner, Tied: tied, QKVBias: true}
}

// qwen3 is Qwen3's dense block: normalised queries and keys.
func qwen3(hidden, inner, layers, heads int, tied bool) Architecture {
	return Architecture{Vocabulary: 151936, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128,
		Intermediate: inner, Tied: tied, QKNorm: true}
}

// qwen3MoE is Qwen3's block with experts.
func qwen3MoE(hidden, inner, layers, heads, kvHeads, experts int) Architecture {
	return Architecture{Vocabulary: 151936, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: 128,
		QKNorm: true, Experts: experts, ExpertsPerToken: 8, ExpertIntermediate: inner}
}

// llama is the plain block: no biases, no normalised queries.
func llama(vocabulary, hidden, inner, layers, heads, kvHeads, headDim int, tied bool) Architecture {
	return Architecture{Vocabulary: vocabulary, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: headDim,
		Intermediate: inner, Tied: tied}
}

// mixtral is the plain block with eight experts, two a token.
func mixtral(vocabulary, hidden, inner, layers, heads int) Architecture {
	return Architecture{Vocabulary: vocabulary, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128,
		Experts: 8, ExpertsPerToken: 2, ExpertIntermediate: inner}
}

// gptOSS is gpt-oss's block: biases everywhere, every second layer with a window of 128 tokens.
func gptOSS(layers, experts int) Architecture {
	return Architecture{Vocabulary: 201088, Hidden: 2880, Layers: layers, Heads: 64, KVHeads: 8, HeadDim: 64,
		QKVBias: true, OutputBias: true, Experts: experts, ExpertsPerToken: 4, ExpertIntermediate: 2880, ExpertBias: true,
		WindowLayers: layers / 2, WindowTokens: 128}
}

// latent is DeepSeek-V3's block: latent attention, one shared expert.
func latent(vocabulary, heads, dense, experts int) Architecture {
	return Architecture{Vocabulary: vocabulary, Hidden: 7168, Layers: 61, Heads: heads, KVHeads: 1, HeadDim: 192,
		Intermediate: 18432, DenseLayers: dense, Experts: experts, ExpertsPerToken: 8, SharedExperts: 1, ExpertIntermediate: 2048,
		QRank: 1536, KVRank: 512, RopeDim: 64, NopeDim: 128, ValueDim: 128}
}

// glm45 is GLM-4.5's block: grouped-query attention of 96 heads, one shared expert.
func glm45(hidden, inner, layers, dense, experts, expertInner int, norm bool) Architecture {
	return Architecture{Vocabulary: 151552, Hidden: hidden, Layers: layers, Heads: 96, KVHeads: 8, HeadDim: 128,
		Intermediate: inner, QKVBias: true, QKNorm: norm, DenseLayers: dense,
		Experts: experts, ExpertsPerToken: 8, SharedExperts: 1, ExpertIntermediate: expertInner}
}

// qwen35 is Qwen3.5's block of experts: every fourth layer attends to everything, the others keep a
// state of value heads of 128 by 128, which is as large as their cache of 512 tokens.
func qwen35(hidden, inner, layers, heads, experts, perToken, valueHeads int) Architecture {
	return Architecture{Vocabulary: 248320, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: 2, HeadDim: 256, QKNorm: true, GatedOutput: true,
		Experts: experts, ExpertsPerToken: perToken, SharedExperts: 1, ExpertIntermediate: inner,
		WindowLayers: layers - layers/4, WindowTokens: 512, StateLayers: layers - layers/4, StateKeys: 16 * 128, StateValues: valueHeads * 128}
}

// preset is one row of the table.
type preset struct {
	name            string
	parameters      float64
	publishedActive float64
	architecture    Architecture
	source          string
}

// presets lists the models, by family and size. Parameters are those of the
// published weights or of the model card; a test counts them from the shape.
var presets = []preset{
	{"smollm2-135m", 134.5e6, 0, llama(49152, 576, 1536, 30, 9, 3, 64, true), "HuggingFaceTB/SmolLM2-135M config.json, 2024-11"},
	{"smollm2-360m", 361.8e6, 0, llama(49152, 960, 2560, 32, 15, 5, 64, true), "HuggingFaceTB/SmolLM2-360M config.json, 2024-11"},
	{"smollm2-1.7b", 1.711e9, 0, llama(49152, 2048, 8192, 24, 32, 32, 64, true), "HuggingFaceTB/SmolLM2-1.7B config.json, 2024-11"},

	{"qwen2.5-0.5b", 0.494e9, 0, qwen25(896, 4864, 24, 14, 2, 64, true), "Qwen/Qwen2.5-0.5B model card and config.json, 2024-09"},
	{"qwen2.5-1.5b", 1.544e9, 0, qwen25(1536, 8960, 28, 12, 2, 128, true), "Qwen/Qwen2.5-1.5B model card and config.json, 2024-09"},
	{"qwen2.5-3b", 3.086e9, 0, qwen25(2048, 11008, 36, 16, 2, 128, true), "Qwen/Qwen2.5-3B model card and config.json, 2024-09"},
	{"qwen2.5-7b", 7.616e9, 0, qwen25(3584, 18944, 28, 28, 4, 128, false), "Qwen/Qwen2.5-7B model card and config.json, 2024-09"},
	{"qwen2.5-14b", 14.77e9, 0, qwen25(5120, 13824, 48, 40, 8, 128, false), "Qwen/Qwen2.5-14B model card and config.json, 2024-09"},
	{"qwen2.5-32b", 32.76e9, 0, qwen25(5120, 27648, 64, 40, 8, 128, false), "Qwen/Qwen2.5-32B model card and config.json, 2024-09"},
	{"qwen2.5-72b", 72.71e9, 0, qwen25(8192, 29568, 80, 64, 8, 128, false), "Qwen/Qwen2.5-72B model card and config.json, 2024-09"},
	{"qwen2.5-math-1.5b", 1.544e9, 0, qwen25(1536, 8960, 28, 12, 2, 128, true), "Qwen/Qwen2.5-Math-1.5B config.json, 2024-09"},
	{"qwen2.5-math-7b", 7.616e9, 0, qwen25(3584, 18944, 28, 28, 4, 128, false), "Qwen/Qwen2.5-Math-7B config.json, 2024-09"},

	{"qwen3-0.6b", 0.596e9, 0, qwen3(1024, 3072, 28, 16, true), "Qwen/Qwen3-0.6B config.json, 2025-04"},
	{"qwen3-1.7b", 1.721e9, 0, qwen3(2048, 6144, 28, 16, true), "Qwen/Qwen3-1.7B config.json, 2025-04"},
	{"qwen3-4b", 4.022e9, 0, qwen3(2560, 9728, 36, 32, true), "Qwen/Qwen3-4B config.json, 2025-04"},
	{"qwen3-8b", 8.191e9, 0, qwen3(4096, 12288, 36, 32, false), "Qwen/Qwen3-8B config.json, 2025-04"},
	{"qwen3-14b", 14.77e9, 0, qwen3(5120, 17408, 40, 40, false), "Qwen/Qwen3-14B config.json, 2025-04"},
	{"qwen3-32b", 32.76e9, 0, qwen3(5120, 25600, 64, 64, false), "Qwen/Qwen3-32B config.json, 2025-04"},
	{"qwen3-30b-a3b", 30.53e9, 3.3e9, qwen3MoE(2048, 768, 48, 32, 4, 128), "Qwen/Qwen3-30B-A3B model card and config.json, 2025-04"},
	{"qwen3-235b-a22b", 235.1e9, 22e9, qwen3MoE(4096, 1536, 94, 64, 4, 128), "Qwen/Qwen3-235B-A22B model card and config.json, 2025-04"},
	{"qwen3-coder-480b-a35b", 480.2e9, 35e9, qwen3MoE(6144, 2560, 62, 96, 8, 160), "Qwen/Qwen3-Coder-480B-A35B-Instruct model card and config.json, 2025-07"},

	{"qwen3.5-35b-a3b", 35e9, 3e9, qwen35(2048, 512, 40, 16, 256, 8, 32), "Qwen/Qwen3.5-35B-A3B model card and config.json, 2026-02"},
	{"qwen3.5-397b-a17b", 397e9, 17e9, qwen35(4096, 1024, 60, 32, 512, 10, 64), "Qwen/Qwen3.5-397B-A17B model card and config.json, 2026-02"},

	{"llama-3.1-8b", 8.030e9, 0, llama(128256, 4096, 14336, 32, 32, 8, 128, false), "meta-llama/Llama-3.1-8B config.json, 2024-07"},
	{"llama-3.1-70b", 70.55e9, 0, llama(128256, 8192, 28672, 80, 64, 8, 128, false), "meta-llama/Llama-3.1-70B config.json, 2024-07"},
	{"llama-3.1-405b", 405.9e9, 0, llama(128256, 16384, 53248, 126, 128, 8, 128, false), "meta-llama/Llama-3.1-405B config.json, 2024-07"},
	{"llama-3.2-1b", 1.236e9, 0, llama(128256, 2048, 8192, 16, 32, 8, 64, true), "meta-llama/Llama-3.2-1B config.json, 2024-09"},
	{"llama-3.2-3b", 3.213e9, 0, llama(128256, 3072, 8192, 28, 24, 8, 128, true), "meta-llama/Llama-3.2-3B config.json, 2024-09"},

	{"mistral-7b", 7.248e9, 0, llama(32768, 4096, 14336, 32, 32, 8, 128, false), "mistralai/Mistral-7B-v0.3 config.json, 2024-05"},
	{"mixtral-8x7b", 46.70e9, 12.9e9, mixtral(32000, 4096, 14336, 32, 32), "mistralai/Mixtral-8x7B-v0.1 config.json, 2023-12"},

	{"gpt-oss-20b", 20.91e9, 3.6e9, gptOSS(24, 32), "openai/gpt-oss model card and config.json, 2025-08"},
	{"gpt-oss-120b", 116.8e9, 5.1e9, gptOSS(36, 128), "openai/gpt-oss model card and config.json, 2025-08"},

	{"deepseek-v3", 671e9, 37e9, latent(129280, 128, 3, 256), "deepseek-ai/DeepSeek-V3 model card and config.json, 2024-12"},
	{"deepseek-r1", 671e9, 37e9, latent(129280, 128, 3, 256), "deepseek-ai/DeepSeek-R1 model card and config.json, 2025-01"},
	{"kimi-k2", 1.03e12, 32e9, latent(163840, 64, 1, 384), "moonshotai/Kimi-K2 model card and config.json, 2025-07"},
	{"glm-4.5", 355e9, 32e9, glm45(5120, 12288, 92, 3, 160, 1536, true), "zai-org/GLM-4.5 model card and config.json, 2025-07"},
	{"glm-4.5-air", 106e9, 12e9, glm45(4096, 10944, 46, 1, 128, 1408, false), "zai-org/GLM-4.5-Air model card and config.json, 2025-07"},
}

// otherNames are what weights of a preset's shape are published as, too.
var otherNames = map[string]string{
	"deepseek-v3.1": "deepseek-v3", "deepseek-v3-0324": "deepseek-v3", "deepseek-r1-0528": "deepseek-r1",
	"deepseek-r1-distill-qwen-1.5b": "qwen2.5-1.5b", "deepseek-r1-distill-qwen-7b": "qwen2.5-7b", "deepseek-r1-distill-qwen-14b": "qwen2.5-14b", "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
	"deepseek-r1-distill-llama-8b": "llama-3.1-8b", "deepseek-r1-distill-llama-70b": "llama-3.1-70b",
	"qwen2.5-coder-7b": "qwen2.5-7b", "qwen2.5-coder-14b": "qwen2.5-14b", "qwen2.5-coder-32b": "qwen2.5-32b", "qwen2.5-math-72b": "qwen2.5-72b",
	"qwq-32b": "qwen2.5-32b", "qwen3-coder-30b-a3b": "qwen3-30b-a3b", "llama-3.3-70b": "llama-3.1-70b",
	"glm-4.6": "glm-4.5", "kimi-k2-0711": "kimi-k2", "kimi-k2-0905": "kimi-k2", "mistral-7b-v0.2": "mistral-7b",
	// Same config.json but for names: PrimeIntellect/INTELLECT-3 is GLM-4.5-Air trained on, the others their makers' own series.
	"intellect-3": "glm-4.5-air", "qwq-32b-preview": "qwen2.5-32b", "qwen2.5-coder-0.5b": "qwen2.5-0.5b", "qwen2.5-coder-1.5b": "qwen2.5-1.5b", "qwen2.5-coder-3b": "qwen2.5-3b",
	"llama-3-8b": "llama-3.1-8b", "llama-3-70b": "llama-3.1-70b", "llama-3.1-nemotron-nano-8b-v1": "llama-3.1-8b",
	// Short names of reports, such as NeMo-RL's performance-summary.md.
	"qwen3-30b": "qwen3-30b-a3b", "qwen3-30b3a": "qwen3-30b-a3b", "qwen3-235b": "qwen3-235b-a22b", "dsv3": "deepseek-v3",
}

// Models lists the presets, by family and size.
func Models() []Model {
	models := make([]Model, 0, len(presets))
	for _, p := range presets {
		m := p.architecture.model(p.name, p.parameters, p.source)
		m.PublishedActive = p.publishedActive
		models = append(models, m)
	}
	return models
}

// howToList is what errors recommend.
const howToList = "`headway plan --presets` lists them"

// ModelNamed returns a preset. Case, an organisation before a slash and a
// suffix such as -Instruct or -FP8 do not matter. An unknown name is an error
// that names the nearest preset and how to list all.
func ModelNamed(name string) (Model, error) {
	models := Models()
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	i, err := lookup("model", name, names, otherNames)
	if err != nil {
		return Model{}, err
	}
	return models[i], nil
}
