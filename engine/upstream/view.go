package upstream

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// headerBytesMax bounds the header of a safetensors file.
const headerBytesMax = 100 << 20

// isView reports whether a directory looks like one in the layout of Hugging Face.
func isView(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "config.json"))
	return err == nil
}

// checkView refuses a directory from which a server could not load a whole model, or a whole
// adapter: an update that fails half-way leaves it with weights that nobody knows. It returns the
// shape of every tensor.
func checkView(dir string, lora bool) (map[string]string, error) {
	config, weights := "config.json", "model.safetensors"
	if lora {
		config, weights = "adapter_config.json", "adapter_model.safetensors"
	}
	if _, err := os.Stat(filepath.Join(dir, config)); err != nil {
		return nil, fmt.Errorf("the directory is not one that a server can read: %w", err)
	}
	names, err := shards(filepath.Join(dir, weights+".index.json"))
	if os.IsNotExist(err) {
		names, err = []string{weights}, nil
	}
	if err != nil {
		return nil, err
	}
	shapes := map[string]string{}
	for _, name := range names {
		if err := checkSafetensors(filepath.Join(dir, name), shapes); err != nil {
			return nil, err
		}
	}
	return shapes, nil
}

// sameShapes refuses a version that has other tensors than one before: servers keep the old values
// of those that are missing, and say nothing.
func sameShapes(before, now map[string]string) error {
	for name, shape := range before {
		if now[name] != shape {
			return fmt.Errorf("its tensor %q has the shape %q (empty: it is missing), it had %s in a version before", name, now[name], shape)
		}
	}
	for name := range now {
		if _, ok := before[name]; !ok {
			return fmt.Errorf("its tensor %q is new: no version before had it", name)
		}
	}
	return nil
}

// shards lists the files that an index names, each once.
func shards(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var index struct {
		Weights map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var names []string
	seen := map[string]bool{}
	for tensor, name := range index.Weights {
		if name == "" || strings.ContainsAny(name, `/\`) {
			return nil, fmt.Errorf("%s: tensor %q is in the file %q, want the name of one beside the index", path, tensor, name)
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: it names no tensor", path)
	}
	return names, nil
}

// checkSafetensors makes sure that a file is as long as its header says, and adds its tensors' shapes.
func checkSafetensors(path string, shapes map[string]string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var length [8]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return fmt.Errorf("%s: it has no header: %w", path, err)
	}
	size := binary.LittleEndian.Uint64(length[:])
	if size > headerBytesMax {
		return fmt.Errorf("%s: its header would be %d bytes long", path, size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(f, text); err != nil {
		return fmt.Errorf("%s: its header is not whole: %w", path, err)
	}
	end, err := dataEnd(text, shapes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if want := 8 + int64(size) + end; info.Size() != want {
		return fmt.Errorf("%s: it has %d bytes, its header speaks of %d", path, info.Size(), want)
	}
	return nil
}

// dataEnd is where the data of the last tensor in a header ends; the shapes of all are added.
func dataEnd(header []byte, shapes map[string]string) (int64, error) {
	var tensors map[string]json.RawMessage
	if err := json.Unmarshal(header, &tensors); err != nil {
		return 0, fmt.Errorf("its header is not understood: %w", err)
	}
	end := int64(0)
	for name, text := range tensors {
		if name == "__metadata__" {
			continue
		}
		var tensor struct {
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(text, &tensor); err != nil {
			return 0, fmt.Errorf("its tensor %q is not understood: %w", name, err)
		}
		shapes[name] = fmt.Sprint(tensor.Shape)
		end = max(end, tensor.Offsets[1])
	}
	return end, nil
}
