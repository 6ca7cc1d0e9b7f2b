package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// viewName is the directory, in a version's, that engines read it from.
const viewName = "hf"

// The files of an adapter.
const (
	adapterName       = "adapter_model.safetensors"
	adapterConfigName = "adapter_config.json"
)

// ViewPath is where the view of a version lies below the store's directory, with slashes. An engine
// that sees the store under another path finds it below that.
func ViewPath(version loop.Version) string { return versionName(version) + "/" + viewName }

// View makes a directory in the layout of Hugging Face that has a version's weights, and returns its
// path. It has the files that [Store.PublishCheckpoint] kept beside the weights. It has the version's
// safetensors files under the names that engines expect, with an index where they are several. The
// trainer's own files are left out. It is made whole or not at all, once, and goes when the version
// goes. The weights are second names of the version's files where the disk can, copies elsewhere.
//
// A version that brings a file adapter_config.json is an adapter of a model, not a model: its view has
// the files that it brought.
//
// A version that is not there is ErrNotFound, one without weights ErrNoWeights. A file in the view
// that does not belong there, or is missing from it, is a CorruptError: engines read every file that
// lies there.
func (s *Store) View(ctx context.Context, version loop.Version) (string, error) {
	dir := filepath.Join(s.dir, filepath.FromSlash(ViewPath(version)))
	want, err := s.viewFiles(version)
	if err != nil {
		return "", s.unlessGone(version, err)
	}
	there, err := s.checkView(dir, want)
	if there || err != nil {
		return dir, s.unlessGone(version, err)
	}
	if s.options.ReadOnly {
		return "", fmt.Errorf("weights: make the view of version %d in %s: %w", version, s.dir, ErrReadOnly)
	}
	temporary := s.temporary(version)
	err = s.writeView(ctx, temporary, want)
	if err == nil {
		err = s.disk.Rename(temporary, dir)
	}
	if err != nil {
		// What cannot be removed now is removed by the next Open.
		_ = s.disk.RemoveAll(temporary)
		if errors.Is(err, fs.ErrExist) { // somebody else made it meanwhile
			_, err := s.checkView(dir, want)
			return dir, s.unlessGone(version, err)
		}
		return "", s.unlessGone(version, s.full(fmt.Errorf("weights: make the view of version %d: %w", version, err), viewBytes(want)))
	}
	return dir, s.unlessGone(version, s.syncDir(s.directory(version)))
}

// viewFile is one file of a view: what lies at from, or text where from is empty.
type viewFile struct {
	name, from string
	size       int64
	text       []byte
	// link: it may be a second name of from. What stands beside the weights is copied instead, because it
	// is shared by all versions and whoever writes into one view must not write into all.
	link bool
}

func viewBytes(files []viewFile) (sum int64) {
	for _, f := range files {
		sum += f.size
	}
	return sum
}

// viewFiles says what the view of a version consists of, sorted by name.
func (s *Store) viewFiles(version loop.Version) ([]viewFile, error) {
	m, err := s.Manifest(version)
	if err != nil {
		return nil, err
	}
	if m.Kind != KindFull {
		return nil, fmt.Errorf("weights: the view of version %d: %w", version, ErrNoWeights)
	}
	if _, adapter := m.file(adapterConfigName); adapter {
		return s.adapterFiles(&m)
	}
	files, err := s.besideFiles()
	if err != nil {
		return nil, err
	}
	var shards []File
	for _, f := range m.Files {
		if isModel(f.Name) {
			shards = append(shards, f)
		}
	}
	renamed := map[string]string{}
	for i, f := range shards {
		name := ModelName
		if len(shards) > 1 {
			name = fmt.Sprintf("%s-%05d-of-%05d%s", strings.TrimSuffix(ModelName, safetensorsSuffix), i+1, len(shards), safetensorsSuffix)
		}
		renamed[f.Name] = name
		files = append(files, viewFile{name: name, from: filepath.Join(s.directory(version), f.Name), size: f.Size, link: true})
	}
	if len(shards) > 1 {
		text, err := indexText(&m, renamed)
		if err != nil {
			return nil, err
		}
		files = append(files, viewFile{name: checkpointIndexName, size: int64(len(text)), text: text})
	}
	slices.SortFunc(files, func(a, b viewFile) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// adapterFiles are those of the view of an adapter.
func (s *Store) adapterFiles(m *Manifest) ([]viewFile, error) {
	var files []viewFile
	tensors := 0
	for _, f := range m.Files {
		name := f.Name
		switch {
		case isModel(name):
			name = adapterName
			tensors++
		case !isBeside(name):
			continue
		}
		files = append(files, viewFile{name: name, from: filepath.Join(s.directory(m.Version), f.Name), size: f.Size, link: true})
	}
	if tensors != 1 {
		return nil, fmt.Errorf("weights: version %d is an adapter in %d files of tensors, and engines read one: publish it as %s", m.Version, tensors, adapterName)
	}
	slices.SortFunc(files, func(a, b viewFile) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// besideFiles are what was kept beside the weights.
func (s *Store) besideFiles() ([]viewFile, error) {
	dir, there := s.Beside()
	if !there {
		return nil, fmt.Errorf("weights: %s has no %s: its versions are not of a model in the layout of Hugging Face, and no engine can read them",
			s.dir, filepath.Join(BesideName, checkpointConfigName))
	}
	names, err := s.disk.Names(dir)
	if err != nil {
		return nil, fmt.Errorf("weights: files beside the weights: %w", err)
	}
	var files []viewFile
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil {
			return nil, fmt.Errorf("weights: files beside the weights: %w", err)
		}
		if !isBeside(name) || !info.Mode().IsRegular() {
			return nil, &CorruptError{Path: path, Expected: "only files that stand beside weights in " + dir, Found: info.Mode().String()}
		}
		files = append(files, viewFile{name: name, from: path, size: info.Size()})
	}
	return files, nil
}

// indexText says which tensor is in which file of a view.
func indexText(m *Manifest, renamed map[string]string) ([]byte, error) {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.WeightMap = map[string]string{}
	for _, t := range m.Tensors {
		name, model := renamed[t.File]
		if !model {
			continue
		}
		size, err := tensorBytes(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("weights: tensor %q of version %d: %w", t.Name, m.Version, err)
		}
		index.Metadata.TotalSize += size
		index.WeightMap[t.Name] = name
	}
	text, err := json.MarshalIndent(index, "", "  ")
	return append(text, '\n'), err
}

// checkView reports whether a view is there, and what is wrong with it if it is.
func (s *Store) checkView(dir string, want []viewFile) (there bool, err error) {
	names, err := s.disk.Names(dir)
	if isAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("weights: %w", err)
	}
	left := names
	for _, f := range want {
		path := filepath.Join(dir, f.name)
		info, err := os.Lstat(path)
		switch {
		case isAbsent(err):
			return false, &CorruptError{Path: path, Expected: fmt.Sprintf("a file of %d bytes", f.size), Found: "none"}
		case err != nil:
			return false, fmt.Errorf("weights: %w", err)
		case !info.Mode().IsRegular() || info.Size() != f.size:
			return false, &CorruptError{Path: path, Expected: fmt.Sprintf("a file of %d bytes", f.size), Found: fmt.Sprintf("%v of %d", info.Mode(), info.Size())}
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == f.name })
	}
	if len(left) > 0 {
		return false, &CorruptError{Path: filepath.Join(dir, left[0]), Expected: "nothing, as an engine would read it", Found: "a file that is not of the version"}
	}
	return true, nil
}

// writeView writes a view aside.
func (s *Store) writeView(ctx context.Context, dir string, files []viewFile) error {
	if err := s.disk.Mkdir(dir); err != nil {
		return err
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.writeViewFile(ctx, filepath.Join(dir, f.name), f); err != nil {
			return err
		}
	}
	return s.syncDir(dir)
}

func (s *Store) writeViewFile(ctx context.Context, path string, f viewFile) error {
	if f.from == "" {
		return s.create(path, func(w io.Writer) error {
			_, err := w.Write(f.text)
			return err
		})
	}
	if f.link && s.disk.Link(f.from, path) == nil {
		return nil
	}
	file, err := s.disk.Open(f.from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	return s.create(path, func(w io.Writer) error { return copyAll(ctx, w, file) })
}
