package weights

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Objects is an object store. An object is there whole once Put has returned, or not at
// all; Put replaces. Names have slashes between their parts.
type Objects interface {
	// Put stores what src gives until its end, and returns its size.
	Put(ctx context.Context, name string, src io.Reader) (int64, error)
	// Open opens an object; one that is not there is an error.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// List lists the names that begin with prefix.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete deletes an object; one that is not there is no error.
	Delete(ctx context.Context, name string) error
}

// Remote keeps versions in an object store, for stores elsewhere to pull. A version is
// there when its manifest is, which is put last and deleted first. It may be a delta from
// the version before; then what it leads back to is kept as long as it is. One process
// pushes and prunes, any number pull.
type Remote struct {
	// Objects is where they are, Prefix what their names begin with, such as "weights/".
	Objects Objects
	Prefix  string
	// FullEvery is how many versions come from one full version to the next. The others are deltas,
	// so it bounds how much a late joiner has to take. 0 and 1 push every version full.
	FullEvery int
	// Encoding of the deltas; "" is Overwrite.
	Encoding Encoding
	// Optimizer pushes the trainer's own files too.
	Optimizer bool
}

// object names a file of a version.
func (r *Remote) object(version loop.Version, name string) string {
	return r.Prefix + versionName(version) + "/" + name
}

// Versions lists the versions that are there, ascending.
func (r *Remote) Versions(ctx context.Context) ([]loop.Version, error) {
	versions, _, err := r.list(ctx)
	return versions, err
}

// list lists the versions, and all objects by their versions.
func (r *Remote) list(ctx context.Context) ([]loop.Version, map[loop.Version][]string, error) {
	names, err := r.Objects.List(ctx, r.Prefix)
	if err != nil {
		return nil, nil, fmt.Errorf("weights: list %s*: %w", r.Prefix, err)
	}
	var versions []loop.Version
	objects := map[loop.Version][]string{}
	for _, name := range names {
		dir, file := path.Split(strings.TrimPrefix(name, r.Prefix))
		v, ok := parseVersion(strings.TrimSuffix(dir, "/"))
		if !ok || file == "" {
			continue
		}
		objects[v] = append(objects[v], name)
		if file == ManifestName {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions, objects, nil
}

// Manifest reads the manifest of a version. A manifest that is not there is ErrNotFound.
func (r *Remote) Manifest(ctx context.Context, version loop.Version) (Manifest, error) {
	name := r.object(version, ManifestName)
	there, err := r.Objects.List(ctx, name)
	if err != nil {
		return Manifest{}, fmt.Errorf("weights: list %s: %w", name, err)
	}
	if !slices.Contains(there, name) {
		return Manifest{}, fmt.Errorf("weights: version %d in %s: %w", version, r.Prefix, ErrNotFound)
	}
	content, err := r.Objects.Open(ctx, name)
	if err != nil {
		return Manifest{}, fmt.Errorf("weights: manifest of version %d: %w", version, err)
	}
	text, err := io.ReadAll(io.LimitReader(content, HeaderBytesMax))
	if err := errors.Join(err, content.Close()); err != nil {
		return Manifest{}, fmt.Errorf("weights: manifest of version %d: %w", version, err)
	}
	return parseAnyManifest(text, version, name)
}

// Push puts a stored version into the object store. A version that is there already is left; one of
// another batch is ErrConflict.
func (r *Remote) Push(ctx context.Context, s *Store, version loop.Version) error {
	m, err := s.Manifest(version)
	if err != nil {
		return err
	}
	there, err := r.Manifest(ctx, version)
	if err == nil {
		if there.Lease != m.Lease {
			return fmt.Errorf("weights: push version %d of lease %d: it is there of lease %d: %w", version, m.Lease, there.Lease, ErrConflict)
		}
		return nil
	}
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	base, err := r.base(ctx, s, &m)
	if err != nil {
		return err
	}
	pushed := Manifest{Version: version, BaseVersion: base, Kind: m.Kind, Lease: m.Lease, RestoredFrom: m.RestoredFrom}
	if base == loop.NoVersion {
		err = r.pushFiles(ctx, s, &m, &pushed, isServed)
	} else {
		err = r.pushDelta(ctx, s, &m, &pushed)
	}
	if err == nil && r.Optimizer {
		err = r.pushFiles(ctx, s, &m, &pushed, isOptimizer)
	}
	if err != nil {
		return err
	}
	if _, err := r.Objects.Put(ctx, r.object(version, ManifestName), bytes.NewReader(pushed.append(nil))); err != nil {
		return fmt.Errorf("weights: push version %d: %w", version, err)
	}
	return nil
}

// isServed reports whether a file is not the trainer's own.
func isServed(name string) bool { return !isOptimizer(name) }

// base is the version to push a delta from, loop.NoVersion for a full one.
func (r *Remote) base(ctx context.Context, s *Store, m *Manifest) (loop.Version, error) {
	if r.FullEvery < 2 || m.Kind != KindFull {
		return loop.NoVersion, nil
	}
	versions, err := r.Versions(ctx)
	if err != nil {
		return 0, err
	}
	base, length := loop.NoVersion, 1
	for _, v := range slices.Backward(versions) {
		if v >= m.Version {
			continue
		}
		there, err := r.Manifest(ctx, v)
		if err != nil {
			return 0, err
		}
		if there.Kind == KindNone {
			continue
		}
		if local, err := s.Manifest(v); err != nil || local.Kind != KindFull || local.Lease != there.Lease {
			return loop.NoVersion, nil // pruned here: nothing to compute the delta from
		}
		for base = v; there.Kind == KindDelta; length++ {
			if there, err = r.Manifest(ctx, there.BaseVersion); err != nil {
				return 0, err
			}
		}
		break
	}
	if length >= r.FullEvery {
		return loop.NoVersion, nil
	}
	return base, nil
}

// pushFiles puts the files of a version whose names are wanted.
func (r *Remote) pushFiles(ctx context.Context, s *Store, m, pushed *Manifest, wanted func(string) bool) error {
	for _, f := range m.Files {
		if !wanted(f.Name) {
			continue
		}
		content, _, err := s.OpenFile(ctx, m.Version, f.Name, 0)
		if err != nil {
			return err
		}
		if err := r.put(ctx, r.object(m.Version, f.Name), content, f); err != nil {
			return fmt.Errorf("weights: push version %d: %w", m.Version, err)
		}
		pushed.Files = append(pushed.Files, f)
		pushed.Tensors = append(pushed.Tensors, m.tensors(f.Name)...)
	}
	return nil
}

// pushDelta puts the delta from pushed.BaseVersion.
func (r *Remote) pushDelta(ctx context.Context, s *Store, m, pushed *Manifest) error {
	pushed.Kind, pushed.Encoding = KindDelta, r.Encoding
	pushed.Encoding = cmp.Or(pushed.Encoding, Overwrite)
	d, err := s.Diff(ctx, pushed.BaseVersion, m.Version, pushed.Encoding)
	if err != nil {
		return err
	}
	content, _, err := s.OpenDerived(ctx, d, DeltaName, 0)
	if err != nil {
		return err
	}
	if err := r.put(ctx, r.object(m.Version, DeltaName), content, d.Files[0]); err != nil {
		return fmt.Errorf("weights: push version %d: %w", m.Version, err)
	}
	pushed.Files = append(pushed.Files, d.Files[0])
	return nil
}

// put puts a file, verified on its way: a damaged one is not passed on.
func (r *Remote) put(ctx context.Context, name string, content io.ReadCloser, want File) error {
	sum := &hashed{}
	sum.begin(io.Discard)
	_, err := r.Objects.Put(ctx, name, io.TeeReader(content, sum))
	if err := errors.Join(err, content.Close()); err != nil {
		return err
	}
	if found := sum.file(want.Name); found != want {
		return &CorruptError{Path: name, Expected: want.Hash, Found: found.Hash}
	}
	return nil
}

// Pull takes a version into a store. It takes the version's files, or a base and the deltas from
// there in order. The base is the newest full version before it, or one of the chain that the store
// has. It is in the store when Pull returns without an error, and so is every version on the way.
func (r *Remote) Pull(ctx context.Context, s *Store, version loop.Version) error {
	var chain []Manifest
	for at := version; ; {
		local, err := s.Manifest(at)
		if err == nil && (local.Kind == KindFull || at == version) {
			break
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		m, err := r.Manifest(ctx, at)
		if err != nil {
			return err
		}
		chain = append(chain, m)
		if m.Kind != KindDelta {
			break
		}
		at = m.BaseVersion
	}
	for _, m := range slices.Backward(chain) {
		if err := r.pull(ctx, s, &m); err != nil {
			return err
		}
	}
	return nil
}

// pull takes one version, whose base the store has.
func (r *Remote) pull(ctx context.Context, s *Store, m *Manifest) (err error) {
	draft, err := s.Begin(ctx, Description{Version: m.Version, Lease: m.Lease, Kind: m.Kind, BaseVersion: m.BaseVersion,
		Encoding: m.Encoding, RestoredFrom: m.RestoredFrom, Files: m.Files})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, draft.Abort()) }()
	for _, f := range m.Files {
		content, err := r.Objects.Open(ctx, r.object(m.Version, f.Name))
		if err != nil {
			if _, gone := r.Manifest(ctx, m.Version); errors.Is(gone, ErrNotFound) {
				return gone // pruned meanwhile
			}
			return fmt.Errorf("weights: pull version %d: %w", m.Version, err)
		}
		if err := errors.Join(draft.Add(ctx, f.Name, content), content.Close()); err != nil {
			return err
		}
	}
	_, err = draft.Commit(ctx)
	return err
}

// Prune deletes the versions below keepFrom that no version from there on leads back to, never the
// newest that has weights. It also deletes the files that a killed push left below the newest
// version.
func (r *Remote) Prune(ctx context.Context, keepFrom loop.Version) error {
	versions, objects, err := r.list(ctx)
	if err != nil || len(versions) == 0 {
		return err
	}
	needed, weighted := map[loop.Version]bool{}, false
	for i, v := range slices.Backward(versions) {
		m, err := r.Manifest(ctx, v)
		if err != nil {
			return err
		}
		newest := m.Kind != KindNone && !weighted
		weighted = weighted || newest
		if v < keepFrom && !newest && !needed[v] && i < len(versions)-1 {
			continue
		}
		needed[v] = true
		if m.Kind == KindDelta {
			needed[m.BaseVersion] = true
		}
	}
	last := versions[len(versions)-1]
	// The newest first: no delta outlives its base.
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(objects))) {
		if needed[v] || v > last {
			continue
		}
		// The manifest first: from then on the version is not there.
		names := objects[v]
		slices.SortFunc(names, func(a, b string) int {
			return strings.Compare(strings.TrimSuffix(a, ManifestName), strings.TrimSuffix(b, ManifestName))
		})
		for _, name := range names {
			if err := r.Objects.Delete(ctx, name); err != nil {
				return fmt.Errorf("weights: prune version %d: %w", v, err)
			}
		}
	}
	return nil
}
