package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// writeModel makes a model's directory of the given files.
func writeModel(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// smallCheckpoint has one file of weights with the tensor a.
func smallCheckpoint(t testing.TB) Checkpoint {
	t.Helper()
	c, err := ReadCheckpoint(writeModel(t, map[string]string{
		"config.json": `{"vocab_size": 64, "max_position_embeddings": 256, "of_our_own": {"x": 1}}`, "generation_config.json": "{}",
		"tokenizer.json": `{"a": 1}`, "chat_template.jinja": "{{ messages }}", ModelName: string(smallModel(t, 1, 2)),
		"optimizer.pt": "not for engines", "README.md": "words", ".gitattributes": "", "pytorch_model.bin": "the same in another form",
	}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listing renders a directory, a line a file.
func listing(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d\n", e.Name(), info.Size())
	}
	return b.String()
}

func TestReadCheckpoint(t *testing.T) {
	c := smallCheckpoint(t)
	got := fmt.Sprint(c.Vocabulary, c.Context, c.Weights, c.Beside)
	if want := "64 256 [model.safetensors] [chat_template.jinja config.json generation_config.json tokenizer.json]"; got != want {
		t.Errorf("it was read as %s, want %s", got, want)
	}
	weights := string(smallModel(t, 1))
	for _, test := range []struct {
		name, want string
		files      map[string]string
	}{
		{"no config", "has no config.json", map[string]string{ModelName: weights}},
		{"not JSON", "is not the JSON of a model", map[string]string{"config.json": "vocab_size: 1", ModelName: weights}},
		{"no vocabulary", "has no vocab_size above 0", map[string]string{"config.json": `{"hidden_size": 4}`, ModelName: weights}},
		{"no weights", "has neither model.safetensors nor model.safetensors.index.json", map[string]string{"config.json": `{"vocab_size": 4}`, "pytorch_model.bin": "x"}},
		{"shard is missing", "names model-00002-of-00002.safetensors, which is not there", map[string]string{"config.json": `{"vocab_size": 4}`,
			"model-00001-of-00002.safetensors": weights, checkpointIndexName: `{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`}},
		{"index leaves the directory", "is no file of a model", map[string]string{"config.json": `{"vocab_size": 4}`,
			checkpointIndexName: `{"weight_map": {"a": "../model.safetensors"}}`}},
		{"empty index", "names no tensors", map[string]string{"config.json": `{"vocab_size": 4}`, checkpointIndexName: `{}`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ReadCheckpoint(writeModel(t, test.files)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one that %q", err, test.want)
			}
		})
	}
	if _, err := ReadCheckpoint(filepath.Join(c.Dir, "nowhere")); err == nil || !strings.Contains(err.Error(), "is not there") {
		t.Errorf("of a directory that is not there: %v", err)
	}
	if _, err := ReadCheckpoint(filepath.Join(c.Dir, "config.json")); err == nil || !strings.Contains(err.Error(), "is a file") {
		t.Errorf("of a file: %v", err)
	}
}

// What ends a sequence is one id or several, and generation_config.json has the last word.
func TestCheckpointEnds(t *testing.T) {
	for _, test := range []struct {
		config, generation string
		want               []int32
	}{
		{`{"vocab_size": 9}`, "", nil},
		{`{"vocab_size": 9, "eos_token_id": 4}`, "", []int32{4}},
		{`{"vocab_size": 9, "eos_token_id": 4}`, `{"eos_token_id": [5, 6]}`, []int32{5, 6}},
		{`{"vocab_size": 9, "eos_token_id": 4}`, `{"eos_token_id": null}`, []int32{4}},
		{`{"text_config": {"vocab_size": 6, "eos_token_id": [7]}}`, "{}", []int32{7}},
	} {
		files := map[string]string{"config.json": test.config, ModelName: string(smallModel(t, 1))}
		if test.generation != "" {
			files["generation_config.json"] = test.generation
		}
		c, err := ReadCheckpoint(writeModel(t, files))
		if err != nil || !slices.Equal(c.Ends, test.want) {
			t.Errorf("%s and %q: %v, %v, want %v", test.config, test.generation, c.Ends, err, test.want)
		}
	}
	for _, text := range []string{`{"vocab_size": 9, "eos_token_id": "x"}`, `{"vocab_size": 9, "eos_token_id": 1.5}`} {
		if c, err := ReadCheckpoint(writeModel(t, map[string]string{"config.json": text, ModelName: string(smallModel(t, 1))})); err == nil {
			t.Errorf("%s was read as %v", text, c.Ends)
		}
	}
}

// Architectures differ in what they call their longest sequence, and in where it stands.
func TestModelShape(t *testing.T) {
	for text, want := range map[string][2]int{
		`{"vocab_size": 5, "n_positions": 7}`: {5, 7},
		`{"vocab_size": 5, "seq_length": 9}`:  {5, 9},
		`{"vocab_size": 5}`:                   {5, 0},
		`{"text_config": {"vocab_size": 6, "max_position_embeddings": 8}, "vision_config": {"n_positions": 3}}`: {6, 8},
	} {
		c, err := ReadCheckpoint(writeModel(t, map[string]string{"config.json": text, ModelName: string(smallModel(t, 1))}))
		if err != nil || c.Vocabulary != want[0] || c.Context != want[1] {
			t.Errorf("%s was read as %d, %d, %v, want %v", text, c.Vocabulary, c.Context, err, want)
		}
	}
}

func TestView(t *testing.T) {
	c := smallCheckpoint(t)
	dir := t.TempDir()
	s := openTest(t, dir, Options{Always: true})
	for range 2 { // the same again is fine
		if err := s.PublishCheckpoint(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := publishFiles(t, s, Description{Version: 1, Lease: 3, Kind: KindFull},
		add{"weights.safetensors", smallModel(t, 3, 4)}, add{"optimizer.safetensors", smallModel(t, 9)}, add{"notes.txt", []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for version, values := range map[loop.Version][]float32{0: {1, 2}, 1: {3, 4}} {
		for range 2 {
			view, err := s.View(t.Context(), version)
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, filepath.FromSlash(ViewPath(version))); view != want {
				t.Errorf("the view is %s, want %s", view, want)
			}
			if got, want := listing(t, view), "chat_template.jinja 14\nconfig.json 74\ngeneration_config.json 2\nmodel.safetensors 72\ntokenizer.json 8\n"; got != want {
				t.Errorf("version %d is seen as\n%swant\n%s", version, got, want)
			}
			if got, err := os.ReadFile(filepath.Join(view, ModelName)); err != nil || string(got) != string(smallModel(t, values...)) {
				t.Errorf("the weights of version %d are not its own: %v", version, err)
			}
		}
		if err := s.Verify(t.Context(), version); err != nil {
			t.Error(err)
		}
	}
	// The run goes on when the model has been moved, and its versions when it is opened anew.
	if err := os.RemoveAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir, Options{})
	if _, err := publishFiles(t, s, Description{Version: 2, Lease: 4, Kind: KindFull}, add{ModelName, smallModel(t, 5, 6)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.View(t.Context(), 2); err != nil {
		t.Error(err)
	}
	if err := s.Prune(2); err != nil {
		t.Fatal(err)
	}
	onlyVersions(t, dir, BesideName, "v000002")
	if _, err := s.View(t.Context(), 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("the view of a version that was pruned: %v", err)
	}
}

// Shards keep their tensors, whatever their publisher calls them.
func TestViewOfShards(t *testing.T) {
	a := smallModel(t, 1)
	b := tensorFile(t, []byte{0x80, 0x3f, 0x00, 0xc0}, Entry{Name: "b", DType: BF16, Shape: []int{2}})
	c, err := ReadCheckpoint(writeModel(t, map[string]string{
		"config.json": `{"vocab_size": 4}`, "part-a.safetensors": string(a), "part-b.safetensors": string(b), "consolidated.safetensors": "not in the index",
		checkpointIndexName: `{"weight_map": {"a": "part-a.safetensors", "b": "part-b.safetensors"}}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	s := openTest(t, t.TempDir(), Options{})
	if err := s.PublishCheckpoint(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	view, err := s.View(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(view, checkpointIndexName))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Metadata  map[string]int64  `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	want := "map[a:model-00001-of-00002.safetensors b:model-00002-of-00002.safetensors] map[total_size:8]"
	if got := fmt.Sprint(index.WeightMap, index.Metadata); got != want {
		t.Errorf("the index says %s, want %s", got, want)
	}
	if again, err := ReadCheckpoint(view); err != nil || len(again.Weights) != 2 {
		t.Errorf("a view is read as %v, %v", again, err)
	}
	// One that its trainer published whole needs no index.
	whole := tensorFile(t, append([]byte{0, 0, 0, 64}, 0x80, 0x3f, 0x00, 0xc0), Entry{Name: "a", DType: F32, Shape: []int{1}}, Entry{Name: "b", DType: BF16, Shape: []int{2}})
	if _, err := publishFiles(t, s, Description{Version: 1, Lease: 1, Kind: KindFull}, add{ModelName, whole}); err != nil {
		t.Fatal(err)
	}
	if view, err = s.View(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, view), fmt.Sprintf("config.json 17\nmodel.safetensors %d\n", len(whole)); got != want {
		t.Errorf("it is seen as\n%swant\n%s", got, want)
	}
}

// A version that says what it adapts is seen as it was published.
func TestViewOfAdapter(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	config := add{adapterConfigName, []byte(`{"r": 8}`)}
	if _, err := publishFiles(t, s, Description{Version: 0, Kind: KindFull}, config, add{"a.safetensors", smallModel(t, 1)}, add{"optimizer.safetensors", smallModel(t, 1)}); err != nil {
		t.Fatal(err)
	}
	view, err := s.View(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, view), "adapter_config.json 8\nadapter_model.safetensors 68\n"; got != want {
		t.Errorf("it is seen as\n%swant\n%s", got, want)
	}
	b := tensorFile(t, []byte{0, 0, 0, 64}, Entry{Name: "b", DType: F32, Shape: []int{1}})
	s = openTest(t, t.TempDir(), Options{})
	if _, err := publishFiles(t, s, Description{Version: 0, Kind: KindFull}, config, add{"a.safetensors", smallModel(t, 1)}, add{"b.safetensors", b}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.View(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "in 2 files of tensors") {
		t.Errorf("of an adapter in parts: %v", err)
	}
}

// Models in a cache are links to files elsewhere: their content is taken, not the link.
func TestCheckpointOfLinks(t *testing.T) {
	c := smallCheckpoint(t)
	linked := t.TempDir()
	for _, name := range append(c.Beside, c.Weights...) {
		if err := os.Symlink(filepath.Join(c.Dir, name), filepath.Join(linked, name)); err != nil {
			t.Skip(err)
		}
	}
	for _, link := range []bool{false, true} {
		again, err := ReadCheckpoint(linked)
		if err != nil {
			t.Fatal(err)
		}
		s := openTest(t, t.TempDir(), Options{Link: link})
		if err := s.PublishCheckpoint(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		view, err := s.View(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(filepath.Join(view, ModelName)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the view has %v, %v", info, err)
		}
	}
}

// Engines read whatever lies in a view: it is refused with anything more or less in it.
func TestForeignFilesInView(t *testing.T) {
	for name, spoil := range map[string]func(view string) error{
		"more": func(view string) error {
			return os.WriteFile(filepath.Join(view, "adapter.safetensors"), nil, 0o644)
		},
		"less":        func(view string) error { return os.Remove(filepath.Join(view, "tokenizer.json")) },
		"other":       func(view string) error { return os.Truncate(filepath.Join(view, "config.json"), 3) },
		"a directory": func(view string) error { return os.Mkdir(filepath.Join(view, "original"), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, t.TempDir(), Options{})
			if err := s.PublishCheckpoint(t.Context(), smallCheckpoint(t)); err != nil {
				t.Fatal(err)
			}
			view, err := s.View(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(view); err != nil {
				t.Fatal(err)
			}
			var corrupt *CorruptError
			if _, err := s.View(t.Context(), 0); !errors.As(err, &corrupt) {
				t.Errorf("the view is given out: %v", err)
			}
		})
	}
}

func TestViewRefusals(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	if _, err := s.View(t.Context(), 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := publishFiles(t, s, Description{Version: 0, Kind: KindFull}, add{ModelName, smallModel(t, 1, 2)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.View(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "not of a model in the layout of Hugging Face") {
		t.Errorf("of a version without a model: %v", err)
	}
	if _, err := publishFiles(t, s, Description{Version: 1, Lease: 1, Kind: KindNone}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.View(t.Context(), 1); !errors.Is(err, ErrNoWeights) {
		t.Errorf("of a version without weights: %v", err)
	}
	reader := openTest(t, s.dir, Options{ReadOnly: true})
	if err := reader.PublishCheckpoint(t.Context(), smallCheckpoint(t)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("publishing into what is only read: %v", err)
	}
}

// Several engines ask for the view of one version at once, while older versions are pruned.
func TestViewsAtOnce(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	if err := s.PublishCheckpoint(t.Context(), smallCheckpoint(t)); err != nil {
		t.Fatal(err)
	}
	for version := loop.Version(1); version <= 4; version++ {
		if _, err := publishFiles(t, s, Description{Version: version, Lease: 1, Kind: KindFull}, add{ModelName, smallModel(t, float32(version), 1)}); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for version := range loop.Version(5) {
		for range 4 {
			all.Go(func() {
				_, err := s.View(t.Context(), version)
				if err != nil && (version == 4 || !errors.Is(err, ErrNotFound)) {
					t.Errorf("the view of version %d: %v", version, err)
				}
			})
		}
		all.Go(func() {
			if err := s.Prune(version); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	onlyVersions(t, s.dir, BesideName, "v000004")
}

// Whatever goes wrong at whatever operation, a view is whole or not there, and the next try makes it.
func TestViewFaults(t *testing.T) {
	alone(t)
	c := smallCheckpoint(t)
	for _, f := range faults {
		for operation := 0; ; operation++ {
			dir := t.TempDir()
			disk := newFaulty(f, operation)
			s, err := open(dir, Options{Always: true}, disk)
			if err == nil {
				if err = s.PublishCheckpoint(t.Context(), c); err == nil {
					_, err = s.View(t.Context(), 0)
				}
			}
			name := fmt.Sprintf("%s, operation %d: %s", f.name, operation, disk.struck)
			if disk.struck != "" && err == nil && !strings.HasPrefix(disk.struck, "link") && !strings.HasPrefix(disk.struck, "remove") {
				t.Errorf("%s: there is no error", name)
			}
			s = openTest(t, dir, Options{})
			if err := s.PublishCheckpoint(t.Context(), c); err != nil {
				t.Fatalf("%s: publishing again: %v", name, err)
			}
			view, err := s.View(t.Context(), 0)
			if err != nil {
				t.Fatalf("%s: the view: %v", name, err)
			}
			if got, err := ReadCheckpoint(view); err != nil || len(got.Beside) != len(c.Beside) {
				t.Fatalf("%s: it has %v, %v", name, got, err)
			}
			onlyVersions(t, dir, BesideName, "v000000")
			if disk.struck == "" {
				if operation < 20 {
					t.Fatalf("only %d operations were struck", operation)
				}
				break
			}
		}
	}
}
