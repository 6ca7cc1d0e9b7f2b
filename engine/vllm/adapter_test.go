package vllm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// writeAdapter makes an adapter of a model's query and value projections with random weights.
func writeAdapter(t *testing.T, m *llama, seed uint64) string {
	t.Helper()
	const rank = 4
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(seed, 0))
	header, data := map[string]any{}, []byte{}
	add := func(name string, rows, columns int) {
		from := len(data)
		for range rows * columns {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(random.NormFloat64()*0.3)))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": []int{rows, columns}, "data_offsets": []int{from, len(data)}}
	}
	for l := range m.config.Layers {
		for part, width := range map[string]int{"q_proj": m.config.Heads * m.config.HeadDim, "v_proj": m.config.KeyHeads * m.config.HeadDim} {
			prefix := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.%s.", l, part)
			add(prefix+"lora_A.weight", rank, m.config.Hidden)
			add(prefix+"lora_B.weight", width, rank)
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	config := `{"peft_type":"LORA","task_type":"CAUSAL_LM","r":4,"lora_alpha":8,"lora_dropout":0,"target_modules":["q_proj","v_proj"],"bias":"none","fan_in_fan_out":false,"inference_mode":true}`
	for name, content := range map[string][]byte{"adapter_model.safetensors": append(file, data...), "adapter_config.json": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestAdapters switches adapters of a real vLLM under its responses.
func TestAdapters(t *testing.T) {
	address := os.Getenv("HEADWAY_TEST_VLLM_LORA")
	if address == "" {
		t.Skip("HEADWAY_TEST_VLLM_LORA is not set: the address of a vLLM started with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")
	}
	first, _, _ := strings.Cut(os.Getenv("HEADWAY_TEST_WEIGHTS"), ":")
	m := newLlama(t, first)
	var dirs []string
	for seed := range uint64(3) {
		dirs = append(dirs, writeAdapter(t, m, seed))
	}
	enginetest.RunAdapters(t, enginetest.AdapterSubject{
		URL: address, Dialect: func() upstream.Dialect { return New() }, Dirs: dirs, Remove: unload,
		Prompt: []int32{3, 20, 21, 4, 9, 9, 9, 10}, MaxTokens: 200, Vocabulary: m.config.Vocabulary, Within: precision,
	})
}

// TestUnnamedSpans: a server without developer's paths calls every token's weights "default". One adapter samples a
// request, so that its spans are left out there and only there.
func TestUnnamedSpans(t *testing.T) {
	last := []byte(`{"choices":[{"index":0,"token_ids":[7],"logprobs":{"content":[{"token":"token_id:7","logprob":-1,"top_logprobs":[]}]},"finish_reason":"stop","weight_versions":[{"version":"default","start":0,"end":1}]}]}`)
	for _, said := range []bool{false, true} {
		var d upstream.Delta
		caps := &upstream.Capabilities{VersionSpans: said, Private: &learnt{generate: true}}
		if err := New().Decoder(upstream.Request{Lora: true}, caps).Event(last, &d); err != nil || len(d.Tokens) != 1 || (len(d.Spans) == 1) != said {
			t.Errorf("labels can be given: %v: %+v, %v", said, d, err)
		}
	}
}
