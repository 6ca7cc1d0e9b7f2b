package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

const (
	// checkpointConfigName is the file that makes a directory a model's.
	checkpointConfigName = "config.json"
	// generationConfigName is the file that says how a model is sampled from, where there is one.
	generationConfigName = "generation_config.json"
	// checkpointIndexName says which tensor is in which file, where there are several.
	checkpointIndexName = ModelName + ".index.json"
	// BesideName is the directory, in a store's, of what stands beside the weights of all its versions.
	BesideName = "model"
	// besideBytesMax bounds one file of it: a tokenizer is large, weights in another form are larger.
	besideBytesMax = 1 << 30
)

// besideSuffixes end the names of what a model's directory has beside its weights: its shape,
// its tokenizer, the template of its chats and code of its own.
var besideSuffixes = []string{".json", ".jinja", ".txt", ".model", ".tiktoken", ".py"}

// Checkpoint is a directory with a model in the layout of Hugging Face.
type Checkpoint struct {
	// Dir is the directory.
	Dir string
	// Vocabulary is the number of token ids that the model has rows for, Context the longest sequence
	// in tokens; 0 where its config.json says none.
	Vocabulary, Context int
	// Layers are all layers of a mixture of experts, Experts those in one layer, and ExpertsPerToken how many a token
	// goes to. All are 0 where its config.json says no experts.
	Layers, Experts, ExpertsPerToken int
	// Ends are the token ids that end a sequence, as generation_config.json says, else config.json;
	// nil where neither does.
	Ends []int32
	// Weights are its safetensors files, Beside those of its other files that an engine reads; sorted.
	Weights, Beside []string
}

// ReadCheckpoint reads what a directory says of its model. An error says what is missing.
func ReadCheckpoint(dir string) (Checkpoint, error) {
	c, err := ReadShape(dir)
	if err != nil {
		return c, err
	}
	c.Weights, err = checkpointWeights(dir)
	return c, err
}

// ReadShape is ReadCheckpoint of a directory that need not have weights: it reads the config.json and
// lists what is beside.
func ReadShape(dir string) (Checkpoint, error) {
	c := Checkpoint{Dir: dir}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, fmt.Errorf("the model's directory %s is not there", dir)
	case err != nil:
		return c, fmt.Errorf("the model's directory %s: %w", dir, err)
	case !info.IsDir():
		return c, fmt.Errorf("%s is a file, want the directory of a model in the layout of Hugging Face", dir)
	}
	path := filepath.Join(dir, checkpointConfigName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%s has no %s: want the directory of a model in the layout of Hugging Face", dir, checkpointConfigName)
	}
	if err != nil {
		return c, fmt.Errorf("the model in %s: %w", dir, err)
	}
	var shape modelShape
	if err := json.Unmarshal(text, &shape); err != nil {
		return c, fmt.Errorf("%s is not the JSON of a model: %w", path, err)
	}
	c.Vocabulary, c.Context, c.Ends = shape.vocabulary(), shape.context(), shape.ends()
	c.Layers, c.Experts, c.ExpertsPerToken = shape.experts()
	var generation modelShape
	if text, err := os.ReadFile(filepath.Join(dir, generationConfigName)); err == nil {
		if err := json.Unmarshal(text, &generation); err != nil {
			return c, fmt.Errorf("%s in %s is not JSON: %w", generationConfigName, dir, err)
		}
	}
	if ends := generation.ends(); ends != nil {
		c.Ends = ends
	}
	if c.Vocabulary < 1 {
		return c, fmt.Errorf("%s has no vocab_size above 0: it does not say how many token ids the model has", path)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return c, fmt.Errorf("the model in %s: %w", dir, err)
	}
	for _, e := range entries {
		if isBeside(e.Name()) {
			c.Beside = append(c.Beside, e.Name())
		}
	}
	return c, nil
}

// modelShape is what is read of a config.json. Models that see as well as read have the part that
// reads in a section of its own; architectures differ in what they call the longest sequence.
type modelShape struct {
	VocabSize             int         `json:"vocab_size"`
	EOS                   tokenIDs    `json:"eos_token_id"`
	MaxPositionEmbeddings int         `json:"max_position_embeddings"`
	NPositions            int         `json:"n_positions"`
	NCtx                  int         `json:"n_ctx"`
	MaxSequenceLength     int         `json:"max_sequence_length"`
	MaxSeqLen             int         `json:"max_seq_len"`
	SeqLength             int         `json:"seq_length"`
	Layers                count       `json:"num_hidden_layers"`
	NumExperts            count       `json:"num_experts"`
	NRoutedExperts        count       `json:"n_routed_experts"`
	NumLocalExperts       count       `json:"num_local_experts"`
	ExpertsPerToken       count       `json:"num_experts_per_tok"`
	Text                  *modelShape `json:"text_config"`
	Language              *modelShape `json:"llm_config"`
}

func (m *modelShape) sections() []*modelShape { return []*modelShape{m, m.Text, m.Language} }

func (m *modelShape) vocabulary() int {
	for _, s := range m.sections() {
		if s != nil && s.VocabSize > 0 {
			return s.VocabSize
		}
	}
	return 0
}

func (m *modelShape) context() int {
	for _, s := range m.sections() {
		if s == nil {
			continue
		}
		for _, n := range []int{s.MaxPositionEmbeddings, s.NPositions, s.NCtx, s.MaxSequenceLength, s.MaxSeqLen, s.SeqLength} {
			if n > 0 {
				return n
			}
		}
	}
	return 0
}

// experts are the layers, the experts in one and those of a token; 0 for a model that has no experts.
func (m *modelShape) experts() (layers, experts, each int) {
	for _, s := range m.sections() {
		if s == nil || s.ExpertsPerToken == 0 {
			continue
		}
		for _, n := range []count{s.NumExperts, s.NRoutedExperts, s.NumLocalExperts} {
			if n > 0 {
				return int(s.Layers), int(n), int(s.ExpertsPerToken)
			}
		}
	}
	return 0, 0, 0
}

// count is a whole number, 0 for anything else: some models have a list where others have a number.
type count int

// UnmarshalJSON implements json.Unmarshaler.
func (c *count) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err == nil && n > 0 {
		*c = count(n)
	}
	return nil
}

func (m *modelShape) ends() []int32 {
	for _, s := range m.sections() {
		if s != nil && len(s.EOS) > 0 {
			return s.EOS
		}
	}
	return nil
}

// tokenIDs is one id or a list of them; null is none.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] != '[' && string(text) != "null" {
		text = slices.Concat([]byte("["), text, []byte("]"))
	}
	return json.Unmarshal(text, (*[]int32)(t))
}

// isBeside reports whether a file of a model's directory goes with every version's weights.
func isBeside(name string) bool {
	if checkName(name) != nil || strings.HasSuffix(name, ".index.json") {
		return false
	}
	return slices.ContainsFunc(besideSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// checkpointWeights are the safetensors files of a model: those of its index, or the only one.
func checkpointWeights(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, checkpointIndexName))
	if err == nil {
		return indexedWeights(dir, text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the model in %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ModelName)); err != nil {
		return nil, fmt.Errorf("%s has neither %s nor %s: weights in other forms are not read; save the model as safetensors", dir, ModelName, checkpointIndexName)
	}
	return []string{ModelName}, nil
}

func indexedWeights(dir string, text []byte) ([]string, error) {
	path := filepath.Join(dir, checkpointIndexName)
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s is not an index: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s names no tensors: want weight_map with the file of each", path)
	}
	files := map[string]bool{}
	for tensor, name := range index.WeightMap {
		if err := checkName(name); err != nil || !isModel(name) {
			return nil, fmt.Errorf("%s has the tensor %q in %q, which is no file of a model", path, tensor, name)
		}
		files[name] = true
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("%s names %s, which is not there", path, name)
		}
	}
	return names, nil
}

// Beside is the directory of the files that [Store.PublishCheckpoint] kept beside the weights; false
// before that. It is for a run that goes on after the model it began with has been moved.
func (s *Store) Beside() (string, bool) {
	dir := filepath.Join(s.dir, BesideName)
	_, err := os.Stat(filepath.Join(dir, checkpointConfigName))
	return dir, err == nil
}

// PublishCheckpoint publishes a model's weights as version 0, and keeps what stands beside them for
// the views of all versions ([Store.View]). The files are copied, or linked where Options.Link allows
// it, and checked as by Draft.Add. Repeating it is fine.
func (s *Store) PublishCheckpoint(ctx context.Context, c Checkpoint) (err error) {
	if s.options.ReadOnly {
		return fmt.Errorf("weights: publish %s: %w", c.Dir, ErrReadOnly)
	}
	if err := s.keepBeside(ctx, c); err != nil {
		return fmt.Errorf("weights: keeping what stands beside the weights of %s: %w", c.Dir, err)
	}
	d := Description{Version: 0, Kind: KindFull}
	for _, name := range c.Weights {
		info, err := os.Stat(filepath.Join(c.Dir, name))
		if err != nil {
			return fmt.Errorf("weights: publish %s: %w", c.Dir, err)
		}
		d.Files = append(d.Files, File{Name: name, Size: info.Size()})
	}
	draft, err := s.Begin(ctx, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, draft.Abort()) }()
	for _, f := range d.Files {
		if err := draft.addFrom(ctx, f, filepath.Join(c.Dir, f.Name)); err != nil {
			return err
		}
	}
	_, err = draft.Commit(ctx)
	return err
}

// addFrom takes a file that lies at a path, through symbolic links: models from a cache are such.
func (d *Draft) addFrom(ctx context.Context, want File, path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
	}
	file, err := d.s.disk.Open(path)
	if err != nil {
		return fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
	}
	return d.addFile(ctx, want, file, path, d.s.options.Link)
}

// keepBeside copies what stands beside the weights into the store, whole or not at all.
func (s *Store) keepBeside(ctx context.Context, c Checkpoint) error {
	if _, there := s.Beside(); there {
		return nil
	}
	temporary := s.temporary(loop.Version(0))
	if err := s.disk.Mkdir(temporary); err != nil {
		return err
	}
	err := func() error {
		for _, name := range c.Beside {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.copyBeside(filepath.Join(c.Dir, name), filepath.Join(temporary, name)); err != nil {
				return err
			}
		}
		if err := s.syncDir(temporary); err != nil {
			return err
		}
		return s.disk.Rename(temporary, filepath.Join(s.dir, BesideName))
	}()
	if err != nil {
		// What cannot be removed now is removed by the next Open.
		_ = s.disk.RemoveAll(temporary)
		if _, there := s.Beside(); there && errors.Is(err, fs.ErrExist) {
			return nil // somebody else was faster
		}
		return err
	}
	return s.syncDir(s.dir)
}

func (s *Store) copyBeside(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > besideBytesMax {
		return fmt.Errorf("%s is %v of %d bytes, want a file of at most %d", from, info.Mode(), info.Size(), besideBytesMax)
	}
	file, err := s.disk.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	return s.create(to, func(w io.Writer) error {
		_, err := io.Copy(w, file)
		return err
	})
}
