// Package program builds the world's program and runs it, one process a seed.
package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// LimitDefault is how long one world may take, in the time of the machine that runs it. A world takes a part of a
// second: one that takes this long hangs.
const LimitDefault = 60 * time.Second

// raceSlower is how much longer a world may take under the race detector.
const raceSlower = 10

// Program is a world's program that is ready to run. It may be run many times side by side.
type Program struct {
	// Sum is the SHA-256 of the program's file: programs with one sum are one build.
	Sum string
	// Limit is how long one world may take.
	Limit time.Duration
	// Race says that the program was built with the race detector.
	Race bool

	folder string // of this process: the program's own copy, and the worlds' folders
	path   string
	worlds atomic.Int64
}

// Open makes a program of a file, under a copy of its own: a later build into the same file changes no run. The worlds'
// folders are made in memory where there is room, else in the folder for temporary files.
func Open(path string, race bool) (*Program, error) {
	folder, err := scratch()
	if err != nil {
		return nil, err
	}
	p := &Program{Limit: LimitDefault, Race: race, folder: folder, path: filepath.Join(folder, "world")}
	if race {
		p.Limit *= raceSlower
	}
	if p.Sum, err = copied(path, p.path); err != nil {
		return nil, errors.Join(fmt.Errorf("the world's program %s: %w", path, err), p.Close())
	}
	return p, nil
}

// Close removes the folders of the program and of its worlds.
func (p *Program) Close() error { return os.RemoveAll(p.folder) }

// copied copies a program and returns the sum of its bytes.
func copied(from, to string) (string, error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, out.Close())
}

// The memory's own file system, and how much has to be free in it for worlds: they remove what they write.
const (
	memory    = "/dev/shm"
	memoryMin = 2 << 30 // bytes
)

// prefix begins the name of a process's folder; the process's number follows.
const prefix = "headway-world-"

// scratch makes the folder of this process, and removes those of processes that are gone.
func scratch() (string, error) {
	parent := os.TempDir()
	if free(memory) >= memoryMin {
		parent = memory
	}
	left, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, folder := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), prefix), "-")
		if pid, err := strconv.Atoi(number); err == nil && !alive(pid) {
			_ = os.RemoveAll(folder) // another user's stays
		}
	}
	// Its path is of one length, as all is that a world begins with.
	folder := filepath.Join(parent, fmt.Sprintf("%s%07d-%016x", prefix, os.Getpid(), rand.Uint64()))
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", fmt.Errorf("a folder for worlds: %w", err)
	}
	return folder, nil
}

// keptMax is how much is kept of the beginning of the output of a program, and as much of its end, in bytes.
const keptMax = 1 << 20

// kept holds the beginning and the end of what is written to it.
type kept struct {
	first, last bytes.Buffer
	left        int64 // bytes between the two that were not kept
}

// Write never fails.
func (k *kept) Write(b []byte) (int, error) {
	n := len(b)
	if room := keptMax - k.first.Len(); room > 0 {
		part := b[:min(room, len(b))]
		k.first.Write(part)
		b = b[len(part):]
	}
	k.last.Write(b)
	if over := k.last.Len() - keptMax; over > 0 {
		k.last.Next(over)
		k.left += int64(over)
	}
	return n, nil
}

// String is all of it, with a line in the place of what was not kept.
func (k *kept) String() string {
	if k.left == 0 {
		return k.first.String() + k.last.String()
	}
	return fmt.Sprintf("%s\n… %d bytes are left out …\n%s", k.first.String(), k.left, k.last.String())
}

// errLimit is the cause of the end of a context whose time is over.
var errLimit = errors.New("the time limit is over")

// limited returns a context that ends with errLimit as its cause.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errLimit)
}
