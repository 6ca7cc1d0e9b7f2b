package hardware

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/spelling"
)

func TestPresetCountsFollowFromTheirShapes(t *testing.T) {
	for _, m := range Models() {
		derived := m.Architecture.Parameters()
		if math.Abs(derived/m.Parameters-1) > 0.02 {
			t.Errorf("%s: %g parameters published, %g by its shape", m.Name, m.Parameters, derived)
		}
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		if m.Source == "" {
			t.Errorf("%s has no source", m.Name)
		}
	}
}

// Model cards print the active count rounded, and do not say whether the input
// table counts: one of the two ways has to agree with the print.
func TestActiveCountsAgreeWithModelCards(t *testing.T) {
	for _, m := range Models() {
		if m.PublishedActive == 0 {
			continue
		}
		without := m.Active() - m.LookupParameters
		nearest := math.Min(math.Abs(m.Active()/m.PublishedActive-1), math.Abs(without/m.PublishedActive-1))
		if nearest > 0.07 {
			t.Errorf("%s: %.3g active published, %.3g by its shape, %.3g without the input table", m.Name, m.PublishedActive, m.Active(), without)
		}
	}
}

func TestCacheOfATokenByHand(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes float64 // at two bytes a number
	}{
		{"llama-3.1-8b", 131072},   // 2·32·8·128·2
		{"qwen2.5-7b", 57344},      // 2·28·4·128·2
		{"deepseek-v3", 70272},     // 61·(512+64)·2
		{"qwen3-30b-a3b", 98304},   // 2·48·4·128·2
		{"smollm2-1.7b", 196608},   // 2·24·32·64·2
		{"llama-3.1-405b", 516096}, // 2·126·8·128·2
	} {
		m, err := ModelNamed(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.CacheBytes(1, 2); got != c.bytes {
			t.Errorf("%s: a token takes %g bytes, by hand %g", c.name, got, c.bytes)
		}
		if one, half := m.CacheBytes(1000, 2), m.CacheBytes(1000, 1); half != one/2 {
			t.Errorf("%s: one byte a number takes %g, two %g", c.name, half, one)
		}
	}
}

// Half of gpt-oss's layers keep 128 tokens, however long the context.
func TestWindowedLayersKeepTheirWindowAlone(t *testing.T) {
	m, err := ModelNamed("gpt-oss-20b")
	if err != nil {
		t.Fatal(err)
	}
	perToken := 2.0 * 24 * 8 * 64 * 2
	if got, want := m.CacheBytes(100, 2), 100*perToken; got != want {
		t.Errorf("inside the window: %g bytes, want %g", got, want)
	}
	if got, want := m.CacheBytes(10000, 2), perToken/2*(10000+128); got != want {
		t.Errorf("beyond the window: %g bytes, want %g", got, want)
	}
}

func TestExpertsReadGrowWithTheBatch(t *testing.T) {
	m, err := ModelNamed("mixtral-8x7b")
	if err != nil {
		t.Fatal(err)
	}
	dense := m.Parameters - m.LookupParameters - m.ExpertParameters
	for _, c := range []struct{ active, share float64 }{{1, 0.25}, {2, 0.4375}, {4, 0.68359375}} {
		want := dense + c.share*m.ExpertParameters
		if got := m.ReadParameters(c.active); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("%g rollouts read %g parameters, want %g", c.active, got, want)
		}
	}
	if got, want := m.ReadParameters(1000), m.Parameters-m.LookupParameters; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("many rollouts read %g parameters, want all %g", got, want)
	}
}

func TestNames(t *testing.T) {
	for given, want := range map[string]string{
		"Qwen/Qwen3-8B": "qwen3-8b", "Qwen2.5-7B-Instruct": "qwen2.5-7b", "qwen3_30b_a3b": "qwen3-30b-a3b",
		"Qwen/Qwen3-235B-A22B-Thinking-2507": "qwen3-235b-a22b", "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
		"mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b", "deepseek-ai/DeepSeek-V3.1": "deepseek-v3", "DeepSeek-R1-Distill-Qwen-7B": "qwen2.5-7b", " openai/gpt-oss-20b ": "gpt-oss-20b", "Qwen/Qwen3-4B-Instruct-2507-FP8": "qwen3-4b",
		"LLAMA3.1_8B": "llama-3.1-8b", "Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b", "qwen-2.5-7b": "qwen2.5-7b", "DeepSeek V3": "deepseek-v3", "Qwen3-30B3A": "qwen3-30b-a3b", "INTELLECT-3": "glm-4.5-air", "GLM4.5-Air": "glm-4.5-air",
		"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3-nano-30b-a3b", "Nemotron-3-Nano-30B-A3B": "nemotron-3-nano-30b-a3b", "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron-nano-9b-v2", "Qwen/Qwen3.5-9B": "qwen3.5-9b", "Qwen/Qwen3-Next-80B-A3B-Thinking": "qwen3-next-80b-a3b",
		"deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3", "zai-org/GLM-5-FP8": "glm-5", "zai-org/GLM-4.7": "glm-4.5", "moonshotai/Kimi-K2-Thinking": "kimi-k2", "MiniMaxAI/MiniMax-M2": "minimax-m2", "moonshotai/Moonlight-16B-A3B-Instruct": "moonlight-16b-a3b",
		"mistralai/Magistral-Small-2506": "mistral-small-24b", "allenai/OLMo-2-1124-7B-Instruct": "olmo-2-7b", "google/gemma-3-27b-it": "gemma-3-27b", "microsoft/phi-4": "phi-4",
	} {
		m, err := ModelNamed(given)
		if err != nil || m.Name != want {
			t.Errorf("%q is %q (%v), want %s", given, m.Name, err, want)
		}
	}
	for given, want := range map[string]string{"H100": "h100-sxm", "h100_sxm": "h100-sxm", "H200": "h200", "A100-80GB": "a100-80-sxm", "RTX 4090": "rtx-4090",
		"DGX-H100": "h100-sxm", "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA A100-SXM4-80GB": "a100-80-sxm", "GB200 NVL72": "gb200",
		"GB300": "gb300", "B300": "b300", "MI355X": "mi355x"} {
		g, err := GPUNamed(given)
		if err != nil || g.Name != want {
			t.Errorf("%q is %q (%v), want %s", given, g.Name, err, want)
		}
	}
}

func TestUnknownNamesSayTheNearest(t *testing.T) {
	for given, nearest := range map[string]string{"qwen3-9b": "qwen3-4b, qwen3-8b", "lama-3.1-8b": "llama-3.1-8b", "gtp-oss-20b": "gpt-oss-20b", "deepseek-v33": "deepseek-v3", "qwen3-30": "qwen3-30b-a3b"} {
		_, err := ModelNamed(given)
		if err == nil || !strings.Contains(err.Error(), "nearest: "+nearest) || !strings.Contains(err.Error(), "headway plan --presets") {
			t.Errorf("%q: %v, want the nearest (%s) and how to list all", given, err, nearest)
		}
	}
	for given, nearest := range map[string]string{"h1000": "h100-sxm", "mi300": "mi300x", "b20": "b200"} {
		_, err := GPUNamed(given)
		if err == nil || !strings.Contains(err.Error(), "nearest: "+nearest) || !strings.Contains(err.Error(), "headway plan --presets") {
			t.Errorf("%q: %v, want the nearest (%s) and how to list all", given, err, nearest)
		}
	}
	if _, err := ModelNamed("  "); err == nil || !strings.Contains(err.Error(), "no name given") {
		t.Errorf("an empty name: %v", err)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"h100", "h200", 1}, {"same", "same", 0}} {
		if got := spelling.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d edits, want %d", c.a, c.b, got, c.want)
		}
	}
}

// A hybrid's layers with a state cost as a window does that is as large.
func TestHybridsByHand(t *testing.T) {
	m, err := ModelNamed("nemotron-3-nano-30b-a3b")
	if err != nil {
		t.Fatal(err)
	}
	// Six attention layers of 2 heads of 128, keys and values; 23 layers keep 64·64·128 numbers, as much as 1024 tokens.
	if got, want := m.CacheBytes(10000, 2), 2.0*2*128*2*(6*10000+23*1024); math.Abs(got/want-1) > 1e-12 {
		t.Errorf("a cache of 10,000 tokens takes %g bytes, by hand %g", got, want)
	}
	if got, want := m.attention(10000), 2.0*32*128*(6*10000+23*2048); got != want {
		t.Errorf("attention over 10,000 tokens is %g, by hand %g", got, want)
	}
}

// Four-bit weights multiply faster where the GPU has such units, and as 16-bit ones elsewhere.
func TestPeaksByPrecision(t *testing.T) {
	for _, c := range []struct {
		gpu   string
		bytes float64
		want  float64
	}{{"h100", 2, 989e12}, {"h100", 1, 1979e12}, {"h100", 0.53, 989e12}, {"b200", 0.53, 9000e12}, {"gb300", 0.53, 15000e12}, {"gb300", 1, 5000e12}, {"a100", 1, 312e12}, {"mi300x", 0.53, 1307e12}} {
		g, err := GPUNamed(c.gpu)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.FLOPs(c.bytes); got != c.want {
			t.Errorf("%s at %g bytes: %g FLOP/s, want %g", c.gpu, c.bytes, got, c.want)
		}
	}
}
