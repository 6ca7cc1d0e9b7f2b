package weights

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzCheckpoint: the JSON files of a model's directory may be anything. What is read of them names files of that directory alone.
func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"vocab_size":64,"eos_token_id":[1,2],"max_position_embeddings":256}`), []byte(`{"eos_token_id":2}`), []byte(`{"weight_map":{"a":"model.safetensors"}}`))
	f.Add([]byte(`{"text_config":{"vocab_size":64,"eos_token_id":null},"llm_config":{"n_ctx":8}}`), []byte(`null`), []byte(`{"weight_map":{"a":"../model.safetensors","b":"/etc/passwd"}}`))
	f.Add([]byte(`{"vocab_size":1e3}`), []byte(`{"eos_token_id":"a"}`), []byte(`{"weight_map":null}`))
	f.Fuzz(func(t *testing.T, config, generation, index []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{checkpointConfigName: config, generationConfigName: generation, checkpointIndexName: index, ModelName: {}, "tokenizer.json": nil} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := ReadCheckpoint(dir)
		if err != nil {
			return
		}
		if c.Vocabulary < 1 || c.Context < 0 || len(c.Weights) == 0 {
			t.Errorf("%+v", c)
		}
		for _, name := range slices.Concat(c.Weights, c.Beside) {
			if name != filepath.Base(name) {
				t.Errorf("the file %q", name)
			}
		}
	})
}

// FuzzDerived: what describes a derived artefact is refused, or is the one that was asked for and names plain files.
func FuzzDerived(f *testing.F) {
	d := Derived{Version: 3, Name: "delta-xor", Kind: KindDelta, Files: []File{{Name: DeltaName, Size: 5, Hash: sumText(nil)}}}
	text, err := d.text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text[:len(text)-hashTail])
	f.Add([]byte(`{"version":3,"name":"delta-xor","kind":"delta","files":[{"name":"../a"}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := parseDerived(sealManifest(slices.Clone(body), 0), 3, "delta-xor", "path")
		if err != nil {
			return
		}
		for _, file := range d.Files {
			if d.Version != 3 || file.Name != filepath.Base(file.Name) {
				t.Errorf("%+v", d)
			}
		}
	})
}
