package tinker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
)

// record is the document of a version's file.
type record struct {
	Format  int          `json:"format"`
	Version loop.Version `json:"version"`
	// Lease is the batch that produced it; 0 for version 0.
	Lease loop.LeaseID `json:"lease"`
	// Sampler and State are paths at the service.
	Sampler string `json:"sampler"`
	State   string `json:"state"`
	// Former are paths that Sampler had before, to be deleted with it.
	Former []string `json:"former,omitempty"`
}

// is reports whether a record says the same as another of its version.
func (r *record) is(o *record) bool {
	return r.Lease == o.Lease && r.Sampler == o.Sampler && r.State == o.State
}

const (
	// recordFormat changes when the document does.
	recordFormat = 1
	recordSuffix = ".json"
	// temporarySuffix ends the names of files that are being written.
	temporarySuffix = ".tmp"
	// orphanPrefix begins those of versions that were set aside: orphan-N-vNNNNNN.json.
	orphanPrefix = "orphan-"
)

func fileName(version loop.Version) string { return fmt.Sprintf("v%06d%s", version, recordSuffix) }

func isTemporary(name string) bool { return strings.HasSuffix(name, temporarySuffix) }

// versionOf is the version that a file's name says, if it is one's.
func versionOf(name string) (loop.Version, bool) {
	digits, isRecord := strings.CutSuffix(name, recordSuffix)
	digits, isVersion := strings.CutPrefix(digits, "v")
	n, err := strconv.ParseInt(digits, 10, 64)
	return loop.Version(n), isRecord && isVersion && err == nil && fileName(loop.Version(n)) == name
}

func (v *Versions) path(name string) string { return filepath.Join(v.dir, name) }

func (v *Versions) names() ([]string, error) {
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, fmt.Errorf("versions: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// all are the versions that are there, from the oldest on.
func (v *Versions) all() ([]loop.Version, error) {
	names, err := v.names()
	var out []loop.Version
	for _, name := range names {
		if version, ok := versionOf(name); ok && !v.hidden(version) {
			out = append(out, version)
		}
	}
	slices.Sort(out)
	return out, err
}

// hidden reports whether a version has been pruned, whether or not all of it is deleted by now.
func (v *Versions) hidden(version loop.Version) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return version < v.keepFrom
}

// read returns what is known of a version.
func (v *Versions) read(version loop.Version) (record, error) {
	if v.hidden(version) {
		return record{}, fmt.Errorf("versions: version %d has been pruned from %s: %w", version, v.dir, ErrNotFound)
	}
	r, err := v.readFile(fileName(version))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, fmt.Errorf("versions: version %d in %s: %w", version, v.dir, ErrNotFound)
	}
	return r, err
}

// readFile reads a file of a version's name, set aside or not.
func (v *Versions) readFile(name string) (record, error) {
	text, err := os.ReadFile(v.path(name))
	if err != nil {
		return record{}, fmt.Errorf("versions: %w", err)
	}
	var r record
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&r)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("something follows the document")
		}
	}
	_, after, _ := strings.Cut(name, "v")
	version, _ := versionOf("v" + after)
	switch {
	case err != nil:
	case r.Format != recordFormat:
		err = fmt.Errorf("its format is %d, this program reads %d", r.Format, recordFormat)
	case r.Version != version:
		err = fmt.Errorf("it is of version %d", r.Version)
	case r.Sampler == "" || r.State == "":
		err = errors.New("it lacks a path")
	default:
		return r, nil
	}
	return record{}, fmt.Errorf("versions: %s is damaged: %w; want a document such as %s. Write it anew with the paths that the service lists, or delete it and every later version",
		v.path(name), err, `{"format":1,"version":1,"lease":1,"sampler":"tinker://…","state":"tinker://…"}`)
}

// write puts a version's file in its place, whole and synced.
func (v *Versions) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := v.path(fileName(r.Version))
	err = writeFile(path+temporarySuffix, append(text, '\n'))
	if err == nil && v.options.Fence != nil {
		err = v.options.Fence()
	}
	if err == nil {
		err = os.Rename(path+temporarySuffix, path)
	}
	if err != nil {
		_ = os.Remove(path + temporarySuffix) // the error says more
		return err
	}
	return replace.Directory(v.dir)
}

func writeFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
