package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/loop"
)

// Names of the files of a version.
const (
	ModelName     = "model.safetensors"
	OptimizerName = "optimizer.safetensors"
	ManifestName  = "manifest.json"
)

// Kinds of a version.
const (
	// KindFull is a version that stands on its own.
	KindFull = "full"
	// KindDelta is a version that is said by its difference from another. A Store makes it
	// whole when it is published, so that none of its versions is of this kind.
	KindDelta = "delta"
	// KindNone is a version without weights: it commits a batch whose step was not published.
	KindNone = "none"
)

// Manifest says what a version is. A version is published when its manifest is in place.
type Manifest struct {
	// Version is the publish sequence number.
	Version loop.Version `json:"version"`
	// BaseVersion is what a delta applies to; loop.NoVersion for a full version.
	BaseVersion loop.Version `json:"base_version"`
	// Kind is KindFull or KindNone; KindDelta in an object store.
	Kind string `json:"kind"`
	// Lease is the batch that produced the version; 0 for version 0.
	Lease loop.LeaseID `json:"lease"`
	// RestoredFrom is the earlier version whose state this one is; nil where a step made it.
	RestoredFrom *loop.Version `json:"restored_from,omitempty"`
	// Epoch is that of the writer who published it, Options.Epoch; 0 where writers have none.
	Epoch uint64 `json:"epoch,omitempty"`
	// Encoding is that of a delta; "" otherwise.
	Encoding Encoding `json:"encoding,omitempty"`
	// Files are the version's files, the manifest apart.
	Files []File `json:"files"`
	// Tensors are the tensors of all files, in the order of their data.
	Tensors []TensorInfo `json:"tensors"`
}

// File is a file of a version.
type File struct {
	// Name is its name in the version's directory.
	Name string `json:"name"`
	// Size in bytes.
	Size int64 `json:"size"`
	// Hash of the content: "sha256:" and 64 hexadecimal digits.
	Hash string `json:"hash"`
}

// TensorInfo says what a tensor is and which file it is in.
type TensorInfo struct {
	// Name is unique in its file.
	Name string `json:"name"`
	// DType is the type of the elements.
	DType DType `json:"dtype"`
	// Shape has the dimensions, the slowest first; empty for a scalar.
	Shape []int `json:"shape"`
	// File is the name of the file that holds it.
	File string `json:"file"`
}

// hashText renders a hash as manifests have it.
func hashText(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// file returns the entry of that name.
func (m *Manifest) file(name string) (File, bool) {
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}
	return m.Files[i], true
}

// The manifest's own hash is its last member, over all bytes before it, so that
// no byte of the file can change unseen.
const (
	hashPrefix = ",\n  \"hash\": \""
	hashSuffix = "\"\n}\n"
	hashTail   = len(hashPrefix) + len("sha256:") + 2*sha256.Size + len(hashSuffix)
)

// append appends the manifest's file, a line a file and a tensor.
func (m *Manifest) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, "{\n  \"version\": "...)
	dst = strconv.AppendInt(dst, int64(m.Version), 10)
	dst = append(dst, ",\n  \"base_version\": "...)
	dst = strconv.AppendInt(dst, int64(m.BaseVersion), 10)
	dst = append(dst, ",\n  \"kind\": "...)
	dst = appendString(dst, m.Kind)
	dst = append(dst, ",\n  \"lease\": "...)
	dst = strconv.AppendInt(dst, int64(m.Lease), 10)
	if m.RestoredFrom != nil {
		dst = append(dst, ",\n  \"restored_from\": "...)
		dst = strconv.AppendInt(dst, int64(*m.RestoredFrom), 10)
	}
	if m.Epoch != 0 {
		dst = append(dst, ",\n  \"epoch\": "...)
		dst = strconv.AppendUint(dst, m.Epoch, 10)
	}
	if m.Encoding != "" {
		dst = append(dst, ",\n  \"encoding\": "...)
		dst = appendString(dst, string(m.Encoding))
	}
	dst = append(dst, ",\n  \"files\": ["...)
	for i, f := range m.Files {
		dst = appendItem(dst, i, "name", f.Name)
		dst = append(dst, `, "size": `...)
		dst = strconv.AppendInt(dst, f.Size, 10)
		dst = appendMember(dst, "hash", f.Hash)
		dst = append(dst, '}')
	}
	dst = append(dst, "\n  ],\n  \"tensors\": ["...)
	for i := range m.Tensors {
		t := &m.Tensors[i]
		dst = appendItem(dst, i, "name", t.Name)
		dst = appendMember(dst, "dtype", string(t.DType))
		dst = append(dst, `, "shape": `...)
		dst = appendShape(dst, t.Shape)
		dst = appendMember(dst, "file", t.File)
		dst = append(dst, '}')
	}
	return sealManifest(append(dst, "\n  ]"...), start)
}

// sealManifest ends the manifest that began at start with its own hash.
func sealManifest(dst []byte, start int) []byte {
	sum := sha256.Sum256(dst[start:])
	dst = append(dst, hashPrefix...)
	dst = append(dst, "sha256:"...)
	dst = hex.AppendEncode(dst, sum[:])
	return append(dst, hashSuffix...)
}

// appendItem begins the i-th object of a list with its first member.
func appendItem(dst []byte, i int, name, value string) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	dst = append(dst, "\n    {\""...)
	dst = append(dst, name...)
	dst = append(dst, "\": "...)
	return appendString(dst, value)
}

func appendMember(dst []byte, name, value string) []byte {
	dst = append(dst, ", \""...)
	dst = append(dst, name...)
	dst = append(dst, "\": "...)
	return appendString(dst, value)
}

// parseManifest reads and verifies the manifest of a version of a Store, which is never a
// delta; path is for its errors.
func parseManifest(text []byte, version loop.Version, path string) (Manifest, error) {
	m, err := parseAnyManifest(text, version, path)
	if err == nil && m.Kind == KindDelta {
		err = &CorruptError{Path: path, Expected: "kind " + KindFull + " or " + KindNone, Found: "kind " + strconv.Quote(m.Kind) + ", of which a store makes a whole version"}
	}
	return m, err
}

// parseAnyManifest reads and verifies the manifest of a version of any kind.
func parseAnyManifest(text []byte, version loop.Version, path string) (Manifest, error) {
	refuse := func(expected, found string) (Manifest, error) {
		return Manifest{}, &CorruptError{Path: path, Expected: expected, Found: found}
	}
	if err := checkSeal(text, path); err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return refuse("a JSON manifest", err.Error())
	}
	if m.Version != version {
		return refuse(fmt.Sprintf("version %d, after its directory", version), fmt.Sprintf("version %d", m.Version))
	}
	return m, m.check(path)
}

// check refuses a manifest that no Store writes.
func (m *Manifest) check(path string) error {
	refuse := func(expected, found string) error {
		return &CorruptError{Path: path, Expected: expected, Found: found}
	}
	if m.Kind == KindDelta && (m.BaseVersion < 0 || m.BaseVersion >= m.Version || m.Encoding != Overwrite && m.Encoding != XOR) {
		return refuse("a delta from an earlier version by "+string(Overwrite)+" or "+string(XOR), fmt.Sprintf("one from version %d by %q", m.BaseVersion, m.Encoding))
	}
	if m.Kind != KindFull && m.Kind != KindNone && m.Kind != KindDelta {
		return refuse("kind "+KindFull+", "+KindDelta+" or "+KindNone, "kind "+strconv.Quote(m.Kind)+", which this program cannot read")
	}
	if m.Kind == KindNone && len(m.Files) > 0 {
		return refuse("no files of a version without weights", strconv.Quote(m.Files[0].Name))
	}
	names := make(map[string]struct{}, len(m.Files))
	for _, f := range m.Files {
		if err := checkName(f.Name); err != nil {
			return refuse("plain names of files", err.Error())
		}
		if _, twice := names[f.Name]; twice || f.Size < 0 {
			return refuse("each file once, with its size", fmt.Sprintf("%q of %d bytes", f.Name, f.Size))
		}
		names[f.Name] = struct{}{}
	}
	if m.Kind == KindFull && !slices.ContainsFunc(m.Files, func(f File) bool { return isModel(f.Name) }) {
		return refuse("a file of model tensors, NAME.safetensors", "none")
	}
	for i := range m.Tensors {
		if _, ok := names[m.Tensors[i].File]; !ok {
			return refuse("tensors in the files of the version", fmt.Sprintf("%q in %q", m.Tensors[i].Name, m.Tensors[i].File))
		}
	}
	return nil
}
