package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

const (
	// blobsName is the directory of blobs, made for the first of them.
	blobsName = "blobs"
	// blobChunk is how many bytes of a blob have a checksum of their own: a read verifies the chunks that it touches.
	blobChunk = 64 << 10
	// blobSum is the size of a checksum. Those of all chunks follow the blob's bytes, in order and little-endian.
	blobSum = 4
	// blobName is a blob's file by group, sample, attempt, number and length in bytes.
	blobName = "%d-%d-%d-%d-%d"
)

// blob is one in the index. It is there from the beginning of its put on.
type blob struct {
	id     port.RolloutID
	number int32
	length int64
	whole  bool // its file is there
}

func (b *blob) name() string {
	return fmt.Sprintf(blobName, b.id.Group, b.id.Sample, b.id.Attempt, b.number, b.length)
}

func (b *blob) String() string {
	return fmt.Sprintf("blob %d of g%d/%d, attempt %d", b.number, b.id.Group, b.id.Sample, b.id.Attempt)
}

// blobNamed is the blob of a file's name.
func blobNamed(name string) (*blob, bool) {
	b := &blob{whole: true}
	_, err := fmt.Sscanf(name, blobName, &b.id.Group, &b.id.Sample, &b.id.Attempt, &b.number, &b.length)
	return b, err == nil && b.length >= 0 && b.name() == name
}

// chunks is how many checksums a blob has.
func (b *blob) chunks() int64 { return (b.length + blobChunk - 1) / blobChunk }

// stored is the size of a blob's file.
func (b *blob) stored() int64 { return b.length + blobSum*b.chunks() }

// blobs is the index of all blobs. The mutex of payloads guards it: both have one bound.
type blobs struct {
	groups map[loop.GroupID][]*blob
	bytes  int64
	flying sync.WaitGroup // puts
	// doomed are names of files that are being deleted. Deleting a large file takes milliseconds, and the loop waits for
	// Forget: another goroutine does it.
	doomed map[string]bool
	idle   sync.Cond // no file is being deleted
	synced groupSync
}

// openBlobs lists what there is, and deletes what a process left torn.
func (p *payloads) openBlobs() error {
	p.blobs.groups, p.blobs.doomed = map[loop.GroupID][]*blob{}, map[string]bool{}
	p.blobs.idle.L = &p.mutex
	entries, err := os.ReadDir(p.blobDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), temporary) {
			if err := os.Remove(filepath.Join(p.blobDir(), entry.Name())); err != nil {
				return fmt.Errorf("store: %w", err)
			}
		}
		if b, ok := blobNamed(entry.Name()); ok {
			p.blobs.groups[b.id.Group] = append(p.blobs.groups[b.id.Group], b)
			p.blobs.bytes += b.stored()
		}
	}
	return nil
}

func (p *payloads) blobDir() string { return filepath.Join(p.dir, blobsName) }

// PutBlob keeps a blob beside the payloads, under their bound. It waits for the disk under Options.Always. Without room for
// it nothing of it is kept, the error wraps port.ErrNoSpace, and it may be tried again.
func (s *Store) PutBlob(id port.RolloutID, number int32, data []byte) error {
	p := s.payloads
	b := &blob{id: id, number: number, length: int64(len(data))}
	always, err := p.reserve(b)
	if err != nil {
		return err
	}
	defer p.blobs.flying.Done()
	err = p.writeBlob(b, data, always)
	if noSpace(err) && p.settle() {
		err = p.writeBlob(b, data, always)
	}
	return p.keep(b, err)
}

// reserve puts a blob into the index, and says whether its put waits for the disk.
func (p *payloads) reserve(b *blob) (always bool, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if errors.Is(p.err, ErrClosed) {
		return false, ErrClosed
	}
	most := payload.BlobsMost(p.options.PayloadBytesMax)
	switch used := p.bytes + p.blobs.bytes; {
	case p.find(b.id, b.number) != nil || p.blobs.doomed[b.name()]:
		return false, fmt.Errorf("store: %v was put before", b)
	case used+b.stored() > most:
		return false, fmt.Errorf("store: %w: %v takes %d bytes, and payloads take %d of at most %d in %s: raise the limit or shrink the queue",
			port.ErrNoSpace, b, b.stored(), used, most, p.dir)
	}
	p.blobs.flying.Add(1)
	p.blobs.groups[b.id.Group] = append(p.blobs.groups[b.id.Group], b)
	p.blobs.bytes += b.stored()
	return p.options.Always, nil
}

// find returns a blob of the index, nil for none.
func (p *payloads) find(id port.RolloutID, number int32) *blob {
	for _, b := range p.blobs.groups[id.Group] {
		if b.id == id && b.number == number {
			return b
		}
	}
	return nil
}

// writeBlob writes a blob's file aside and renames it, so that it is there whole or not at all.
func (p *payloads) writeBlob(b *blob, data []byte, always bool) error {
	sums := make([]byte, 0, blobSum*b.chunks())
	for chunk := range slices.Chunk(data, blobChunk) {
		sums = binary.LittleEndian.AppendUint32(sums, crc32.Checksum(chunk, castagnoli))
	}
	path := filepath.Join(p.blobDir(), b.name())
	err := writeFile(path+temporary, always, data, sums)
	if errors.Is(err, fs.ErrNotExist) {
		if err = p.makeBlobDir(always); err == nil {
			err = writeFile(path+temporary, always, data, sums)
		}
	}
	if err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err == nil && always {
		err = p.blobs.synced.directory(p.blobDir())
	}
	if err != nil {
		os.Remove(path + temporary)
		os.Remove(path)
	}
	return err
}

func (p *payloads) makeBlobDir(always bool) error {
	if err := os.Mkdir(p.blobDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !always {
		return nil
	}
	return replace.Directory(p.dir)
}

// keep ends a put. A blob that was forgotten meanwhile is deleted.
func (p *payloads) keep(b *blob, failed error) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	wanted := slices.Contains(p.blobs.groups[b.id.Group], b)
	b.whole = failed == nil
	switch {
	case failed != nil && wanted:
		p.dropBlobs(b.id.Group, func(other *blob) bool { return other == b })
	case failed == nil && !wanted:
		p.doom(b.name())
	}
	if noSpace(failed) {
		return full(b.String(), failed)
	}
	if failed != nil {
		return fmt.Errorf("store: %v: %w", b, failed)
	}
	return nil
}

// dropBlobs takes a group's blobs that are unwanted out of the index, and has their files deleted.
func (p *payloads) dropBlobs(group loop.GroupID, unwanted func(b *blob) bool) {
	kept := p.blobs.groups[group][:0]
	for _, b := range p.blobs.groups[group] {
		if !unwanted(b) {
			kept = append(kept, b)
			continue
		}
		p.blobs.bytes -= b.stored()
		if b.whole {
			p.doom(b.name())
		}
	}
	clear(p.blobs.groups[group][len(kept):])
	if len(kept) == 0 {
		delete(p.blobs.groups, group)
		return
	}
	p.blobs.groups[group] = kept
}

// KeptBlobs returns the numbers of an attempt's blobs, in any order.
func (s *Store) KeptBlobs(id port.RolloutID) (all []int32) {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, b := range p.blobs.groups[id.Group] {
		if b.id == id {
			all = append(all, b.number)
		}
	}
	return all
}

// RetainBlobs drops, after a restart, the blobs of every attempt that does not stand.
func (s *Store) RetainBlobs(stands func(port.RolloutID) bool) {
	p := s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for group := range p.blobs.groups {
		p.dropBlobs(group, func(b *blob) bool { return !stands(b.id) })
	}
}

// retainBlobs drops the blobs of every attempt whose payload is not kept. One that never had a payload is of a process
// that died before its put, which nobody goes on with.
func (p *payloads) retainBlobs() {
	for group := range p.blobs.groups {
		p.dropBlobs(group, func(b *blob) bool {
			if b.id.OfGroup() {
				return len(p.groups[group]) == 0
			}
			return !slices.ContainsFunc(p.groups[group], func(at place) bool { return at.sample == b.id.Sample && at.attempt == b.id.Attempt })
		})
	}
}

// doom has a file deleted.
func (p *payloads) doom(name string) {
	p.blobs.doomed[name] = true
	if len(p.blobs.doomed) == 1 {
		go p.delete()
	}
}

// delete deletes files until there are none to delete.
func (p *payloads) delete() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for len(p.blobs.doomed) > 0 {
		for name := range p.blobs.doomed {
			p.mutex.Unlock()
			p.remains(os.Remove(filepath.Join(p.blobDir(), name)))
			p.mutex.Lock()
			delete(p.blobs.doomed, name)
		}
	}
	p.blobs.idle.Broadcast()
}

// remains says that a file could not be deleted. One that somebody else has removed is gone as well.
func (p *payloads) remains(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.options.Logf("store: deleting payloads: %v", err)
	}
}

// settle waits until no file is being deleted. It reports whether one was.
func (p *payloads) settle() (waited bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.settled()
}

func (p *payloads) settled() (waited bool) {
	for ; len(p.blobs.doomed) > 0; waited = true {
		p.blobs.idle.Wait()
	}
	return waited
}

// ReadBlob fills dst with the bytes of a blob from an offset on. It reads and verifies the chunks that they are in, and
// no others.
func (s *Store) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	p := s.payloads
	p.mutex.Lock()
	b, closed := p.find(id, number), errors.Is(p.err, ErrClosed)
	there := b != nil && b.whole
	p.mutex.Unlock()
	if closed {
		return ErrClosed
	}
	if !there {
		return fmt.Errorf("store: %v: %w", &blob{id: id, number: number}, port.ErrNoBlob)
	}
	if offset < 0 || offset > b.length-int64(len(dst)) {
		return fmt.Errorf("store: %v has %d bytes, asked for %d from byte %d on: %w", b, b.length, len(dst), offset, port.ErrNoBlob)
	}
	f, err := os.Open(filepath.Join(p.blobDir(), b.name()))
	if errors.Is(err, fs.ErrNotExist) { // forgotten meanwhile, or removed by others
		return fmt.Errorf("store: %v: %w: %w", b, port.ErrNoBlob, err)
	}
	if err == nil {
		err = errors.Join(b.read(f, offset, dst), f.Close())
	}
	if err != nil {
		return fmt.Errorf("store: %v: %w", b, err)
	}
	return nil
}

// Blob returns all bytes of a blob. The error is that of ReadBlob.
func (s *Store) Blob(id port.RolloutID, number int32) ([]byte, error) {
	p := s.payloads
	p.mutex.Lock()
	var length int64
	if b := p.find(id, number); b != nil {
		length = b.length
	}
	p.mutex.Unlock()
	data := make([]byte, length)
	return data, s.ReadBlob(id, number, 0, data)
}

// read fills dst from a blob's file, chunk by chunk.
func (b *blob) read(f *os.File, offset int64, dst []byte) error {
	if len(dst) == 0 {
		return nil
	}
	end := offset + int64(len(dst))
	first, last := offset/blobChunk, (end-1)/blobChunk
	sums := make([]byte, blobSum*(last-first+1))
	if _, err := f.ReadAt(sums, b.length+blobSum*first); err != nil {
		return fmt.Errorf("%w: its checksums: %w", port.ErrBlobDamaged, err)
	}
	var beside []byte
	for k := first; k <= last; k++ {
		from, to := k*blobChunk, min((k+1)*blobChunk, b.length)
		wanted := dst[max(from, offset)-offset : min(to, end)-offset]
		chunk := wanted
		if len(chunk) < int(to-from) { // a chunk is verified whole
			if beside == nil {
				beside = make([]byte, blobChunk)
			}
			chunk = beside[:to-from]
		}
		if _, err := f.ReadAt(chunk, from); err != nil {
			return fmt.Errorf("%w: bytes %d to %d: %w", port.ErrBlobDamaged, from, to-1, err)
		}
		if crc32.Checksum(chunk, castagnoli) != binary.LittleEndian.Uint32(sums[blobSum*(k-first):]) {
			return fmt.Errorf("%w: bytes %d to %d of %s", port.ErrBlobDamaged, from, to-1, f.Name())
		}
		if len(chunk) != len(wanted) {
			copy(wanted, chunk[max(from, offset)-from:])
		}
	}
	return nil
}

// groupSync waits for the disk once for all who ask at the same time.
type groupSync struct {
	asking, syncing sync.Mutex
	asked, done     int64
}

// directory makes the names in a directory survive a loss of power.
func (g *groupSync) directory(dir string) error {
	g.asking.Lock()
	g.asked++
	mine := g.asked
	g.asking.Unlock()
	g.syncing.Lock()
	defer g.syncing.Unlock()
	if g.done >= mine {
		return nil // somebody who asked later, or at the same time, has waited
	}
	g.asking.Lock()
	all := g.asked
	g.asking.Unlock()
	if err := replace.Directory(dir); err != nil {
		return err
	}
	g.done = all
	return nil
}
