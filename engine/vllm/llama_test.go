package vllm

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// llama computes log-probs of a Llama in float32 files by itself, in float64: what a server says
// of its weights is held against it, so that no server is its own witness.
type llama struct {
	config struct {
		Hidden     int     `json:"hidden_size"`
		Layers     int     `json:"num_hidden_layers"`
		Heads      int     `json:"num_attention_heads"`
		KeyHeads   int     `json:"num_key_value_heads"`
		HeadDim    int     `json:"head_dim"`
		Vocabulary int     `json:"vocab_size"`
		Epsilon    float64 `json:"rms_norm_eps"`
		Tied       bool    `json:"tie_word_embeddings"`
		Rope       struct {
			Theta float64 `json:"rope_theta"`
		} `json:"rope_parameters"`
	}
	tensors map[string][]float64
}

// newLlama reads a model's directory; a model that is none of the simple kind skips the test.
func newLlama(t *testing.T, dir string) *llama {
	t.Helper()
	m := &llama{tensors: map[string][]float64{}}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m.config); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.Uint64(data)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	for name, raw := range header {
		var entry struct {
			Type    string    `json:"dtype"`
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if name == "__metadata__" {
			continue
		}
		if err := json.Unmarshal(raw, &entry); err != nil || entry.Type != "F32" {
			t.Skipf("%s: %s is %s: only float32 is computed here", dir, name, entry.Type)
		}
		part := data[8+size+entry.Offsets[0] : 8+size+entry.Offsets[1]]
		values := make([]float64, len(part)/4)
		for i := range values {
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(part[4*i:])))
		}
		m.tensors[name] = values
	}
	if m.config.Rope.Theta == 0 {
		m.config.Rope.Theta = 10000
	}
	return m
}

// times is the product of a named matrix, stored by rows of outputs, and a vector.
func (m *llama) times(name string, x []float64) []float64 {
	w := m.tensors[name]
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += w[i*len(x)+j] * v
		}
	}
	return y
}

// norm is the named root-mean-square norm of a vector.
func (m *llama) norm(name string, x []float64) []float64 {
	square := 0.0
	for _, v := range x {
		square += v * v
	}
	scale := 1 / math.Sqrt(square/float64(len(x))+m.config.Epsilon)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * scale * m.tensors[name][i]
	}
	return y
}

// rotate turns the heads of a vector by their position.
func (m *llama) rotate(x []float64, position int) []float64 {
	d := m.config.HeadDim
	y := make([]float64, len(x))
	for head := 0; head < len(x); head += d {
		for i := range d / 2 {
			angle := float64(position) * math.Pow(m.config.Rope.Theta, -2*float64(i)/float64(d))
			sin, cos := math.Sincos(angle)
			a, b := x[head+i], x[head+i+d/2]
			y[head+i], y[head+i+d/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return y
}

// softmax returns the probabilities of logits, and the logarithm of their normaliser.
func softmax(logits []float64) (p []float64, normaliser float64) {
	most := math.Inf(-1)
	for _, v := range logits {
		most = max(most, v)
	}
	sum := 0.0
	p = make([]float64, len(logits))
	for i, v := range logits {
		p[i] = math.Exp(v - most)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p, most + math.Log(sum)
}

// attend mixes the values that a query has seen.
func (m *llama) attend(query []float64, keys, values [][]float64) []float64 {
	d, group := m.config.HeadDim, m.config.Heads/m.config.KeyHeads
	out := make([]float64, len(query))
	for h := range m.config.Heads {
		from := h / group * d
		scores := make([]float64, len(keys))
		for i, key := range keys {
			for j := range d {
				scores[i] += query[h*d+j] * key[from+j] / math.Sqrt(float64(d))
			}
		}
		p, _ := softmax(scores)
		for i, value := range values {
			for j := range d {
				out[h*d+j] += p[i] * value[from+j]
			}
		}
	}
	return out
}

// score returns the log-prob of every token but the first.
func (m *llama) score(tokens []int32) []float64 {
	keys, values := make([][][]float64, m.config.Layers), make([][][]float64, m.config.Layers)
	var scores []float64
	for position, token := range tokens[:len(tokens)-1] {
		n := m.config.Hidden
		x := append([]float64(nil), m.tensors["model.embed_tokens.weight"][int(token)*n:(int(token)+1)*n]...)
		for l := range m.config.Layers {
			m.layer(l, position, x, &keys[l], &values[l])
		}
		head := "lm_head.weight"
		if m.config.Tied {
			head = "model.embed_tokens.weight"
		}
		logits := m.times(head, m.norm("model.norm.weight", x))
		_, normaliser := softmax(logits)
		scores = append(scores, logits[tokens[position+1]]-normaliser)
	}
	return scores
}

// layer adds one layer's part to x and remembers its key and value.
func (m *llama) layer(l, position int, x []float64, keys, values *[][]float64) {
	prefix := "model.layers." + string(rune('0'+l)) + "."
	h := m.norm(prefix+"input_layernorm.weight", x)
	*keys = append(*keys, m.rotate(m.times(prefix+"self_attn.k_proj.weight", h), position))
	*values = append(*values, m.times(prefix+"self_attn.v_proj.weight", h))
	mixed := m.attend(m.rotate(m.times(prefix+"self_attn.q_proj.weight", h), position), *keys, *values)
	for i, v := range m.times(prefix+"self_attn.o_proj.weight", mixed) {
		x[i] += v
	}
	h = m.norm(prefix+"post_attention_layernorm.weight", x)
	gate, up := m.times(prefix+"mlp.gate_proj.weight", h), m.times(prefix+"mlp.up_proj.weight", h)
	for i, v := range gate {
		up[i] *= v / (1 + math.Exp(-v))
	}
	for i, v := range m.times(prefix+"mlp.down_proj.weight", up) {
		x[i] += v
	}
}
