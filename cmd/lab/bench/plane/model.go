package plane

import (
	"os"
	"path/filepath"
	"strings"
)

// WriteModel makes the directory of a model with 64 tokens. Its weights are never read.
func WriteModel(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	header := `{"model.embed_tokens.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	file := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
	for name, content := range map[string][]byte{
		"config.json":       []byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":64,"max_position_embeddings":131072,"hidden_size":2,"num_hidden_layers":1}`),
		"model.safetensors": append(file, make([]byte, 8)...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
