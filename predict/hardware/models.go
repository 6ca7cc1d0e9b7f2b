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

// qwen3Next is Qwen3-Next's block, which is Qwen3.5's of another vocabulary.
func qwen3Next() Architecture {
	a := qwen35(2048, 512, 48, 16, 512, 10, 32)
	a.Vocabulary = 151936
	return a
}

// qwen35Dense is Qwen3.5's block with dense inner layers, and four key-value heads.
func qwen35Dense(hidden, inner, layers, heads, valueHeads int, tied bool) Architecture {
	return Architecture{Vocabulary: 248320, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: 4, HeadDim: 256, QKNorm: true, GatedOutput: true,
		Intermediate: inner, Tied: tied, WindowLayers: layers - layers/4, WindowTokens: valueHeads * 8,
		StateLayers: layers - layers/4, StateKeys: 16 * 128, StateValues: valueHeads * 128}
}

// nemotronH is Nemotron-H's stack of Mamba-2, attention and inner layers without gates. A layer here is one that mixes
// tokens, with its share of the inner ones. The state of 128 numbers for each value is as large as the cache of so many
// tokens.
func nemotronH(hidden, states, attention, heads, kvHeads, values, tokens int) Architecture {
	return Architecture{Vocabulary: 131072, Hidden: hidden, Layers: states + attention, Heads: heads, KVHeads: kvHeads, HeadDim: 128, Ungated: true,
		WindowLayers: states, WindowTokens: tokens, StateLayers: states, StateKeys: 8 * 128, StateValues: values}
}

// inner gives all layers together so many inner ones of that width.
func (a Architecture) inner(layers, width int) Architecture {
	a.Intermediate = layers * width / a.Layers
	return a
}

// mixed gives as many layers as keep a state experts of that width, with shared ones.
func (a Architecture) mixed(experts, perToken, shared, width int) Architecture {
	a.DenseLayers = a.Layers - a.StateLayers
	a.Experts, a.ExpertsPerToken, a.SharedExperts, a.ExpertIntermediate = experts, perToken, shared, width
	return a
}

// gemma3 is Gemma 3's block: five of six layers with a window.
func gemma3(hidden, inner, layers, heads, kvHeads, headDim, window int) Architecture {
	return Architecture{Vocabulary: 262144, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: headDim,
		Intermediate: inner, Tied: true, QKNorm: true, WindowLayers: layers - layers/6, WindowTokens: window}
}

// olmo is OLMo 2's block: normalised queries and keys. Three of four layers of OLMo 3 have a window of 4096 tokens.
func olmo(hidden, inner, layers, heads, kvHeads int, windowed bool) Architecture {
	a := Architecture{Vocabulary: 100352, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: 128, Intermediate: inner, QKNorm: true}
	if windowed {
		a.WindowLayers, a.WindowTokens = layers-layers/4, 4096
	}
	return a
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

	{"qwen3.5-4b", 4.2e9, 0, qwen35Dense(2560, 9216, 32, 16, 32, true), "Qwen/Qwen3.5-4B config.json, 2026-02, without its vision tower"},
	{"qwen3.5-9b", 8.95e9, 0, qwen35Dense(4096, 12288, 32, 16, 32, false), "Qwen/Qwen3.5-9B config.json, 2026-02, without its vision tower"},
	{"qwen3.5-27b", 26.9e9, 0, qwen35Dense(5120, 17408, 64, 24, 48, false), "Qwen/Qwen3.5-27B config.json, 2026-02, without its vision tower"},
	{"qwen3-next-80b-a3b", 79.7e9, 0, qwen3Next(), "Qwen/Qwen3-Next-80B-A3B-Instruct config.json, 2025-09; its card prints 3 B active, without tables"},

	{"llama-3.1-8b", 8.030e9, 0, llama(128256, 4096, 14336, 32, 32, 8, 128, false), "meta-llama/Llama-3.1-8B config.json, 2024-07"},
	{"llama-3.1-70b", 70.55e9, 0, llama(128256, 8192, 28672, 80, 64, 8, 128, false), "meta-llama/Llama-3.1-70B config.json, 2024-07"},
	{"llama-3.1-405b", 405.9e9, 0, llama(128256, 16384, 53248, 126, 128, 8, 128, false), "meta-llama/Llama-3.1-405B config.json, 2024-07"},
	{"llama-3.2-1b", 1.236e9, 0, llama(128256, 2048, 8192, 16, 32, 8, 64, true), "meta-llama/Llama-3.2-1B config.json, 2024-09"},
	{"llama-3.2-3b", 3.213e9, 0, llama(128256, 3072, 8192, 28, 24, 8, 128, true), "meta-llama/Llama-3.2-3B config.json, 2024-09"},

	{"mistral-7b", 7.248e9, 0, llama(32768, 4096, 14336, 32, 32, 8, 128, false), "mistralai/Mistral-7B-v0.3 config.json, 2024-05"},
	{"ministral-8b", 8.02e9, 0, llama(131072, 4096, 12288, 36, 32, 8, 128, false), "mistralai/Ministral-8B-Instruct-2410 config.json, 2024-10"},
	{"mistral-nemo-12b", 12.25e9, 0, llama(131072, 5120, 14336, 40, 32, 8, 128, false), "mistralai/Mistral-Nemo-Base-2407 config.json, 2024-07"},
	{"mistral-small-24b", 23.57e9, 0, llama(131072, 5120, 32768, 40, 32, 8, 128, false), "mistralai/Mistral-Small-24B-Base-2501 config.json, 2025-01"},
	{"mixtral-8x7b", 46.70e9, 12.9e9, mixtral(32000, 4096, 14336, 32, 32), "mistralai/Mixtral-8x7B-v0.1 config.json, 2023-12"},

	{"gemma-3-1b", 1.0e9, 0, gemma3(1152, 6912, 26, 4, 1, 256, 512), "google/gemma-3-1b-pt config.json, 2025-03"},
	{"gemma-3-4b", 3.88e9, 0, gemma3(2560, 10240, 34, 8, 4, 256, 1024), "google/gemma-3-4b-pt config.json, 2025-03, without its vision tower"},
	{"gemma-3-12b", 11.77e9, 0, gemma3(3840, 15360, 48, 16, 8, 256, 1024), "google/gemma-3-12b-pt config.json, 2025-03, without its vision tower"},
	{"gemma-3-27b", 27.0e9, 0, gemma3(5376, 21504, 62, 32, 16, 128, 1024), "google/gemma-3-27b-pt config.json, 2025-03, without its vision tower"},
	{"olmo-2-7b", 7.30e9, 0, olmo(4096, 11008, 32, 32, 32, false), "allenai/OLMo-2-1124-7B config.json, 2024-11"},
	{"olmo-2-13b", 13.7e9, 0, olmo(5120, 13824, 40, 40, 40, false), "allenai/OLMo-2-1124-13B config.json, 2024-11"},
	{"olmo-2-32b", 32.2e9, 0, olmo(5120, 27648, 64, 40, 8, false), "allenai/OLMo-2-0325-32B config.json, 2025-03"},
	{"olmo-3-7b", 7.30e9, 0, olmo(4096, 11008, 32, 32, 32, true), "allenai/Olmo-3-1025-7B config.json, 2025-11"},
	{"olmo-3-32b", 32.2e9, 0, olmo(5120, 27648, 64, 40, 8, true), "allenai/Olmo-3-1125-32B config.json, 2025-11"},
	{"phi-4", 14.66e9, 0, llama(100352, 5120, 17920, 40, 40, 10, 128, false), "microsoft/phi-4 config.json, 2024-12"},
	{"phi-4-mini", 3.84e9, 0, llama(200064, 3072, 8192, 32, 24, 8, 128, true), "microsoft/Phi-4-mini-instruct config.json, 2025-02"},

	{"nemotron-h-8b", 8.10e9, 0, nemotronH(4096, 24, 4, 32, 8, 8192, 512).inner(24, 21504), "nvidia/Nemotron-H-8B-Base-8K config.json, 2025-04"},
	{"nemotron-nano-9b-v2", 8.89e9, 0, nemotronH(4480, 27, 4, 40, 8, 10240, 640).inner(25, 15680), "nvidia/NVIDIA-Nemotron-Nano-9B-v2 config.json, 2025-08"},
	{"nemotron-3-nano-30b-a3b", 31.6e9, 3.6e9, nemotronH(2688, 23, 6, 32, 2, 4096, 1024).mixed(128, 6, 2, 1856), "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 model card and config.json, 2025-12"},

	{"gpt-oss-20b", 20.91e9, 3.6e9, gptOSS(24, 32), "openai/gpt-oss model card and config.json, 2025-08"},
	{"gpt-oss-120b", 116.8e9, 5.1e9, gptOSS(36, 128), "openai/gpt-oss model card and config.json, 2025-08"},

	{"deepseek-v3", 671e9, 37e9, latent(129280, 128, 3, 256), "deepseek-ai/DeepSeek-V3 model card and config.json, 2024-12"},
	{"deepseek-r1", 671e9, 37e9, latent(129280, 128, 3, 256), "deepseek-ai/DeepSeek-R1 model card and config.json, 2025-01"},
	{"kimi-k2", 1.03e12, 32e9, latent(163840, 64, 1, 384), "moonshotai/Kimi-K2 model card and config.json, 2025-07"},
	{"moonlight-16b-a3b", 16e9, 3e9, Architecture{Vocabulary: 163840, Hidden: 2048, Layers: 27, Heads: 16, KVHeads: 1, HeadDim: 192, Intermediate: 11264, DenseLayers: 1,
		Experts: 64, ExpertsPerToken: 6, SharedExperts: 2, ExpertIntermediate: 1408, KVRank: 512, RopeDim: 64, NopeDim: 128, ValueDim: 128}, "moonshotai/Moonlight-16B-A3B model card and config.json, 2025-02"},
	{"minimax-m2", 229e9, 10e9, Architecture{Vocabulary: 200064, Hidden: 3072, Layers: 62, Heads: 48, KVHeads: 8, HeadDim: 128, QKNorm: true,
		Experts: 256, ExpertsPerToken: 8, ExpertIntermediate: 1536}, "MiniMaxAI/MiniMax-M2 model card and config.json, 2025-10"},
	{"glm-4-9b", 9.40e9, 0, Architecture{Vocabulary: 151552, Hidden: 4096, Layers: 40, Heads: 32, KVHeads: 2, HeadDim: 128, Intermediate: 13696, QKVBias: true}, "zai-org/GLM-4-9B-0414 config.json, 2025-04"},
	{"glm-5", 744e9, 40e9, Architecture{Vocabulary: 154880, Hidden: 6144, Layers: 78, Heads: 64, KVHeads: 1, HeadDim: 256, Intermediate: 12288, DenseLayers: 3,
		Experts: 256, ExpertsPerToken: 8, SharedExperts: 1, ExpertIntermediate: 2048, QRank: 2048, KVRank: 512, RopeDim: 64, NopeDim: 192, ValueDim: 256}, "zai-org/GLM-5 model card and config.json, 2026-02"},
	{"glm-4.5", 355e9, 32e9, glm45(5120, 12288, 92, 3, 160, 1536, true), "zai-org/GLM-4.5 model card and config.json, 2025-07"},
	{"glm-4.5-air", 106e9, 12e9, glm45(4096, 10944, 46, 1, 128, 1408, false), "zai-org/GLM-4.5-Air model card and config.json, 2025-07"},
}

// otherNames are what weights of a preset's shape are published as, too.
var otherNames = map[string]string{
	// V3.2 chooses the tokens that it attends to: long contexts cost less than here.
	"deepseek-v3.2": "deepseek-v3", "deepseek-v3.2-exp": "deepseek-v3",
	"glm-4.7": "glm-4.5", "kimi-k2.5": "kimi-k2", "minimax-m2.1": "minimax-m2", "minimax-m2.5": "minimax-m2",
	"magistral-small": "mistral-small-24b", "magistral-small-2506": "mistral-small-24b", "magistral-small-2509": "mistral-small-24b", "ministral-8b-instruct-2410": "ministral-8b", "mistral-nemo": "mistral-nemo-12b", "mistral-nemo-2407": "mistral-nemo-12b", "mistral-small-24b-instruct-2501": "mistral-small-24b",
	"moonlight": "moonlight-16b-a3b", "phi-4-reasoning": "phi-4", "olmo-2-1124-7b": "olmo-2-7b", "olmo-2-1124-13b": "olmo-2-13b", "olmo-2-0325-32b": "olmo-2-32b",
	"olmo-3-1025-7b": "olmo-3-7b", "olmo-3-1125-32b": "olmo-3-32b", "nemotron-3-nano": "nemotron-3-nano-30b-a3b", "nemotron-nano-9b": "nemotron-nano-9b-v2", "nemotron-h-8b-base-8k": "nemotron-h-8b",
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
