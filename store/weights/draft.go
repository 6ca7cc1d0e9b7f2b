package weights

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/headway-rl/headway/loop"
)

// Description says what is to be published from files.
type Description struct {
	// Version is the publish sequence number that it gets.
	Version loop.Version
	// Lease is the batch that made it; 0 for version 0 and for a restored version.
	Lease loop.LeaseID
	// Kind is KindFull, KindDelta or KindNone.
	Kind string
	// BaseVersion is what a delta applies to, and must be in the store; ignored otherwise.
	BaseVersion loop.Version
	// Encoding is that of a delta; ignored otherwise.
	Encoding Encoding
	// RestoredFrom is the earlier version whose state this one is; nil where a step made it.
	RestoredFrom *loop.Version
	// Fence, if not nil, is asked right before the version is put in its place. Its error keeps the
	// version out: a writer that was deposed meanwhile publishes nothing.
	Fence func() error
	// Files that will come, with their sizes and hashes: a hash "" and a size 0 are not
	// declared. Without Files, the files that come are all there are.
	Files []File
}

// Draft is a version on its way into a Store. Nothing of it is seen before Commit, and
// nothing is left of it after Abort or, if the process ends, after the next Open. It is
// for one goroutine; several drafts may be open at once.
type Draft struct {
	s *Store
	d Description
	// dir is the temporary directory; "" where the version exists and is only compared.
	dir string
	// existing is the version that is there.
	existing *Manifest
	files    []File
	// tensors of each of the files that has some, in the order of its data.
	tensors map[string][]Entry
	// delta is what a delta was made whole from, to be kept beside it.
	delta *Derived
	done  bool
}

// Begin starts to publish a version from files. A version that cannot come to be with any files is a
// RefusedError. ErrConflict says that the version exists and is another batch's. ErrNotFound says
// that a delta's base is not there. A FullError says that the declared files do not fit on the disk.
// A version that exists already is compared and not written.
func (s *Store) Begin(ctx context.Context, d Description) (*Draft, error) {
	if s.options.ReadOnly {
		return nil, fmt.Errorf("weights: publish version %d to %s: %w", d.Version, s.dir, ErrReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	draft := &Draft{s: s, d: d, tensors: map[string][]Entry{}}
	existing, err := s.Manifest(d.Version)
	switch {
	case err == nil:
		draft.existing = &existing
		return draft, draft.compareHead(&existing)
	case !errors.Is(err, ErrNotFound):
		return nil, err
	}
	if d.Kind == KindDelta {
		if base, err := s.Manifest(d.BaseVersion); err != nil {
			return nil, fmt.Errorf("weights: the base of version %d: %w; publish a full version", d.Version, err)
		} else if base.Kind != KindFull {
			return nil, fmt.Errorf("weights: the base of version %d is version %d: %w; publish a full version", d.Version, d.BaseVersion, ErrNoWeights)
		}
	}
	if err := s.room(d.bytes()); err != nil {
		return nil, err
	}
	draft.dir = s.temporary(d.Version)
	if err := s.disk.Mkdir(draft.dir); err != nil {
		return nil, s.full(fmt.Errorf("weights: publish version %d: %w", d.Version, err), d.bytes())
	}
	return draft, nil
}

// check refuses descriptions that contradict themselves.
func (d *Description) check() error {
	switch {
	case d.Version < 0 || d.Lease < 0:
		return refused(d.Version, "lease %d, want neither the version nor the lease negative", d.Lease)
	case d.Kind != KindFull && d.Kind != KindDelta && d.Kind != KindNone:
		return refused(d.Version, "kind %q, want %s, %s or %s", d.Kind, KindFull, KindDelta, KindNone)
	case d.Kind == KindNone && len(d.Files) > 0:
		return refused(d.Version, "%d files for kind %s, want none", len(d.Files), KindNone)
	case d.Kind == KindDelta && (d.BaseVersion < 0 || d.BaseVersion >= d.Version):
		return refused(d.Version, "a delta from version %d, want an earlier version", d.BaseVersion)
	case d.Kind == KindDelta && d.Encoding != Overwrite && d.Encoding != XOR:
		return refused(d.Version, "a delta with encoding %q, want %s or %s", d.Encoding, Overwrite, XOR)
	case d.RestoredFrom != nil && (*d.RestoredFrom < 0 || *d.RestoredFrom >= d.Version):
		return refused(d.Version, "restored from version %d, want an earlier one", *d.RestoredFrom)
	}
	names := make(map[string]struct{}, len(d.Files))
	for _, f := range d.Files {
		if err := checkName(f.Name); err != nil {
			return refused(d.Version, "%v", err)
		}
		if _, twice := names[f.Name]; twice {
			return refused(d.Version, "the file %q is declared twice, want each name once", f.Name)
		}
		names[f.Name] = struct{}{}
		if f.Size < 0 || f.Hash != "" && !isHash(f.Hash) {
			return refused(d.Version, "%s is declared with %d bytes and hash %.80q, want a size and \"sha256:\" with 64 hexadecimal digits", f.Name, f.Size, f.Hash)
		}
	}
	return nil
}

// isHash reports whether a hash is written as manifests have it.
func isHash(text string) bool {
	digits, ok := strings.CutPrefix(text, "sha256:")
	return ok && len(digits) == 2*sha256.Size && strings.Trim(digits, "0123456789abcdef") == ""
}

// bytes is the declared size of all files.
func (d *Description) bytes() (sum int64) {
	for _, f := range d.Files {
		sum += f.Size
	}
	return sum
}

// declared finds a file's declaration, and says whether it may come.
func (d *Draft) declared(name string) (File, error) {
	if err := checkName(name); err != nil {
		return File{}, refused(d.d.Version, "%v", err)
	}
	if slices.ContainsFunc(d.files, func(f File) bool { return f.Name == name }) {
		return File{}, refused(d.d.Version, "the file %q came twice, want each once", name)
	}
	if d.d.Kind == KindNone {
		return File{}, refused(d.d.Version, "the file %q for kind %s, want none", name, KindNone)
	}
	if len(d.d.Files) == 0 {
		return File{Name: name}, nil
	}
	i := slices.IndexFunc(d.d.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, refused(d.d.Version, "the file %q was not declared, want only those that were", name)
	}
	return d.d.Files[i], nil
}

// copyBytes is how much of a file is read at once.
const copyBytes = 1 << 20

// Add takes the content of a file. Its size, hash, header and values are checked while
// it comes. After an error the draft is only good for Abort.
func (d *Draft) Add(ctx context.Context, name string, content io.Reader) error {
	want, err := d.declared(name)
	if err != nil {
		return err
	}
	if d.dir == "" {
		return d.take(ctx, want, content, io.Discard)
	}
	return d.s.full(d.s.create(filepath.Join(d.dir, name), func(w io.Writer) error {
		return d.take(ctx, want, content, w)
	}), max(d.d.bytes(), want.Size))
}

// take copies a file to w and records what it was.
func (d *Draft) take(ctx context.Context, want File, content io.Reader, w io.Writer) error {
	size := int64(-1)
	if want.Size > 0 {
		size = want.Size
	}
	sum := sha256.New()
	into := []io.Writer{w, sum}
	var in *inspector
	if isTensors(want.Name) {
		in = &inspector{size: size, names: publishedNamesMax, scan: isModel(want.Name) && !d.s.options.AcceptNonFinite && d.d.Kind == KindFull}
		into = append(into, in)
	}
	n, err := d.copy(ctx, want.Name, content, into, size)
	if err != nil {
		return err
	}
	if in != nil {
		if err := in.end(); err != nil {
			return refused(d.d.Version, "%s: %v", want.Name, err)
		}
		d.tensors[want.Name] = in.header.Entries
	}
	return d.record(want, n, size, sum)
}

// record notes a file that has come, and refuses it if it is not what was declared.
func (d *Draft) record(want File, n, size int64, sum hash.Hash) error {
	if size >= 0 && n != size {
		return refused(d.d.Version, "%s has %d bytes, want the %d declared", want.Name, n, size)
	}
	found := hashText(sum.Sum(nil))
	if want.Hash != "" && found != want.Hash {
		return refused(d.d.Version, "%s has the hash %s, want the declared %s: it changed on its way", want.Name, found, want.Hash)
	}
	d.files = append(d.files, File{Name: want.Name, Size: n, Hash: found})
	return nil
}

// copy passes content on piece by piece; the errors of an inspector are refusals.
func (d *Draft) copy(ctx context.Context, name string, content io.Reader, into []io.Writer, size int64) (n int64, err error) {
	lent := buffers.Get().(*[]byte)
	defer buffers.Put(lent)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, readErr := fillBuffer(content, *lent)
		n += int64(got)
		if size >= 0 && n > size {
			return n, refused(d.d.Version, "%s has more than the %d bytes declared", name, size)
		}
		for _, w := range into {
			if _, err := w.Write((*lent)[:got]); err != nil {
				if in, ok := w.(*inspector); ok && in.wrong != nil {
					return n, refused(d.d.Version, "%s: %v", name, err)
				}
				return n, fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
			}
		}
		switch {
		case readErr == io.EOF:
			return n, nil
		case readErr != nil:
			return n, fmt.Errorf("weights: publish version %d: %s broke off after %d bytes: %w", d.d.Version, name, n, readErr)
		}
	}
}

// fillBuffer reads until the buffer is full or the content ends, with the reader's own
// error: io.ReadFull's for an early end is also that of a connection which broke off.
func fillBuffer(content io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var got int
		got, err = content.Read(buffer[n:])
		n += got
	}
	return n, err
}

// Abort drops a draft. After Commit it does nothing.
func (d *Draft) Abort() error {
	if d.done || d.dir == "" {
		d.done = true
		return nil
	}
	d.done = true
	// What cannot be removed now is removed by the next Open.
	if err := d.s.disk.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("weights: dropping a draft of version %d: %w", d.d.Version, err)
	}
	return nil
}

// room refuses what does not fit on the disk.
func (s *Store) room(needed int64) error {
	if free := s.disk.Free(s.dir); free >= 0 && needed > free {
		return &FullError{Dir: s.dir, Needed: needed, Free: free}
	}
	return nil
}

// full says of an error of a full disk how much was needed and how much there is. The
// files are still there when this is asked, so what is free now is what was lacking.
func (s *Store) full(err error, needed int64) error {
	if already := new(FullError); !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) || errors.As(err, &already) {
		return err
	}
	return fmt.Errorf("%w: %w", &FullError{Dir: s.dir, Needed: needed, Free: s.disk.Free(s.dir)}, err)
}

// isAbsent reports whether an error is that of a file which is not there.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
