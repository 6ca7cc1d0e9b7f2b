package vllm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

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

// TestAdapters changes adapters under a response: it is aborted, and what goes on samples with the
// new one, as its scores say.
func TestAdapters(t *testing.T) {
	s, caps, weights := real(t)
	needs(t, caps.UpdateLora, caps)
	if weights[0] == "" {
		t.Skip("HEADWAY_TEST_WEIGHTS does not name the model's directory")
	}
	r := request(120)
	r.Lora = true
	if _, err := New().Generate(r, caps); err == nil {
		t.Error("before the first adapter a request for it is no error")
	}
	m := newLlama(t, weights[0])
	ctx := limited(t)
	score := func() []float64 {
		t.Helper()
		scores, err := New().Score(ctx, s, r.Prompt, caps)
		if err != nil {
			t.Fatal(err)
		}
		wide := make([]float64, len(scores))
		for i, x := range scores {
			wide[i] = float64(x)
		}
		return wide
	}
	seen := [][]float64{score()}
	var st *stream
	for i := range 3 {
		u := upstream.Update{Label: fmt.Sprintf("adapter-%d", i), Dir: writeAdapter(t, m, uint64(i)), Lora: true, Cache: upstream.CacheSalt}
		update(t, s, caps, u)
		if st != nil {
			st.until(t, all)
			if spans := st.delta.Spans; st.delta.Finish != upstream.FinishAbort || len(spans) > 1 || len(spans) == 1 && spans[0].Label == u.Label {
				t.Errorf("what the old adapter had under way ends by %q with %+v", st.delta.Finish, spans)
			}
		}
		now := score()
		for before, old := range seen {
			if same := farthestOf(now, old); same < 100*precision {
				t.Errorf("adapter %d scores as what was there %d updates before: %g", i, len(seen)-before, same)
			}
		}
		seen = append(seen, now)
		r.Salt, r.ID = u.Label, r.ID+"|"
		st = openLong(t, s, caps, r)
		st.until(t, 10)
	}
	st.until(t, all)
	if len(st.delta.Spans) != 1 || st.delta.Spans[0].Label != "adapter-2" {
		t.Errorf("spans %+v", st.delta.Spans)
	}
	again, err := New().Probe(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if name := of(&again).adapter.Load(); name == nil || *name != caps.Model+adapterMark+"adapter-2" {
		t.Errorf("asked again, the server has the adapter %v", name)
	}
	missing := upstream.Update{Label: "adapter-3", Dir: filepath.Join(t.TempDir(), "nothing"), Lora: true}
	if err := New().Update(ctx, s, missing, caps); upstream.StatusOf(err)/100 != 4 {
		t.Errorf("from a directory that does not exist: %v", err)
	}
	if far := farthestOf(score(), seen[3]); far != 0 {
		t.Errorf("after a failed update it scores %g from before", far)
	}
	if err := unload(context.WithoutCancel(ctx), s, caps.Model+adapterMark+"adapter-2"); err != nil {
		t.Error(err)
	}
}

func farthestOf(a, b []float64) float64 {
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}
