package transfer

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/headway-rl/headway/loop"
)

// Part is one file of a version that travels.
type Part struct {
	// Name in the version's directory.
	Name string
	// Size in bytes.
	Size int64
}

// Copy is one node's copy of a version: all of its parts one after the other, divided
// into chunks. It may be whole or still arriving; the bytes that are there can be read and passed on.
type Copy struct {
	// Version it is a copy of.
	Version loop.Version
	// Form is what its weights were cast to, "" for nothing.
	Form string
	// Manifest is the text of the version's manifest. It has the hash of every part.
	Manifest []byte
	// Parts in the order in which they travel.
	Parts []Part

	dir   string
	size  int64
	files []*os.File

	mu    sync.Mutex
	sums  []uint32 // of the chunks that are there
	known []bool   // that a sum is known
	here  int      // chunks from the first that are there
	moved chan struct{}
	err   error
	open  int // readers; files are closed with the last
	gone  bool
}

func newCopy(version loop.Version, manifest []byte, parts []Part, dir string) *Copy {
	c := &Copy{Version: version, Manifest: manifest, Parts: parts, dir: dir, moved: make(chan struct{})}
	for _, p := range parts {
		c.size += p.Size
	}
	n := int((c.size + ChunkBytes - 1) / ChunkBytes)
	c.sums, c.known = make([]uint32, n), make([]bool, n)
	return c
}

// OpenCopy opens a copy that is whole, in the directory of a published version or of what
// it was cast to.
func OpenCopy(version loop.Version, form string, manifest []byte, parts []Part, dir string) (*Copy, error) {
	c := newCopy(version, manifest, parts, dir)
	c.Form = form
	for _, p := range parts {
		f, err := os.Open(filepath.Join(dir, p.Name))
		if err != nil {
			c.closeFiles()
			return nil, fmt.Errorf("transfer: version %d: %w", version, err)
		}
		c.files = append(c.files, f)
		info, err := f.Stat()
		if err == nil && info.Size() != p.Size {
			err = fmt.Errorf("transfer: version %d: %s has %d bytes, its manifest says %d", version, p.Name, info.Size(), p.Size)
		}
		if err != nil {
			c.closeFiles()
			return nil, err
		}
	}
	c.here = len(c.sums)
	return c, nil
}

// createCopy makes the files of a copy that is to arrive, in a directory of its own.
func createCopy(version loop.Version, manifest []byte, parts []Part, dir string) (*Copy, error) {
	c := newCopy(version, manifest, parts, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	for _, p := range parts {
		if p.Name != filepath.Base(p.Name) || p.Name == "." || p.Name == ".." {
			c.closeFiles()
			return nil, fmt.Errorf("transfer: version %d has a file called %q: want a plain name", version, p.Name)
		}
		f, err := os.OpenFile(filepath.Join(dir, p.Name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		if err == nil {
			c.files = append(c.files, f)
			err = f.Truncate(p.Size)
		}
		if err != nil {
			c.closeFiles()
			return nil, fmt.Errorf("transfer: version %d: %w", version, err)
		}
	}
	return c, nil
}

// Size is the length of all parts together, in bytes.
func (c *Copy) Size() int64 { return c.size }

// Chunks is the number of chunks; Here how many of them, from the first, are there.
func (c *Copy) Chunks() int { return len(c.sums) }

// Here is how many chunks, from the first, are there.
func (c *Copy) Here() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.here
}

// chunkBytes is the length of a chunk.
func (c *Copy) chunkBytes(index int) int {
	return int(min(ChunkBytes, c.size-int64(index)*ChunkBytes))
}

// pieces calls f for every stretch of a file that a chunk covers.
func (c *Copy) pieces(index int, f func(part int, offset int64, length int) error) error {
	begin, left := int64(index)*ChunkBytes, c.chunkBytes(index)
	for i, p := range c.Parts {
		if begin >= p.Size {
			begin -= p.Size
			continue
		}
		n := int(min(int64(left), p.Size-begin))
		if err := f(i, begin, n); err != nil {
			return err
		}
		if left -= n; left == 0 {
			return nil
		}
		begin = 0
	}
	return nil
}

// put stores a chunk that has been checked; they come in order.
func (c *Copy) put(index int, data []byte, sum uint32) error {
	err := c.pieces(index, func(part int, offset int64, length int) error {
		_, err := c.files[part].WriteAt(data[:length], offset)
		data = data[length:]
		return err
	})
	if err != nil {
		return fmt.Errorf("transfer: storing chunk %d of version %d: %w", index, c.Version, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sums[index], c.known[index], c.here = sum, true, index+1
	close(c.moved)
	c.moved = make(chan struct{})
	return nil
}

// fail tells readers that nothing more will come.
func (c *Copy) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.moved)
		c.moved = make(chan struct{})
	}
}

// await waits until a chunk is there and returns its checksum. A whole copy's are made
// when they are first asked for.
func (c *Copy) await(ctx context.Context, index int, scratch []byte) (uint32, error) {
	for {
		c.mu.Lock()
		there, known, sum, moved, err := index < c.here, c.known[index], c.sums[index], c.moved, c.err
		c.mu.Unlock()
		switch {
		case there && known:
			return sum, nil
		case there:
			return c.sum(index, scratch)
		case err != nil:
			return 0, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// sum makes the checksum of a chunk of a whole copy.
func (c *Copy) sum(index int, scratch []byte) (uint32, error) {
	sum := uint32(0)
	err := c.pieces(index, func(part int, offset int64, length int) error {
		if _, err := io.ReadFull(io.NewSectionReader(c.files[part], offset, int64(length)), scratch[:length]); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, scratch[:length])
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("transfer: reading chunk %d of version %d: %w", index, c.Version, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sums[index], c.known[index] = sum, true
	return sum, nil
}

// use keeps the files open until the returned function is called; false when the copy is closed.
func (c *Copy) use() (func(), bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, false
	}
	c.open++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open--; c.open == 0 && c.gone {
			c.closeFiles()
		}
	}, true
}

// Close lets go of the files once no reader is left.
func (c *Copy) Close() {
	c.fail(fmt.Errorf("transfer: the copy of version %d is closed", c.Version))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.gone = true
		if c.open == 0 {
			c.closeFiles()
		}
	}
}

func (c *Copy) closeFiles() {
	closeAll(c.files)
	c.files = nil
}

// closeAll closes files of which nothing more is wanted: what was written has been
// synced where that was asked for.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// reopen opens the files once more, for a reader with a place of its own in them.
func (c *Copy) reopen() (files []*os.File, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.Parts {
		f, err := os.Open(filepath.Join(c.dir, p.Name))
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("transfer: version %d: %w", c.Version, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// rename moves a copy that is whole to its place.
func (c *Copy) rename(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(c.dir, dir); err != nil {
		return fmt.Errorf("transfer: version %d: %w", c.Version, err)
	}
	c.dir = dir
	return nil
}

// sync makes the files survive a loss of power.
func (c *Copy) sync() error {
	for _, f := range c.files {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("transfer: version %d: %w", c.Version, err)
		}
	}
	return nil
}
