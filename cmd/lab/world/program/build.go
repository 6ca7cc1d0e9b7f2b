package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/doctored"
	"github.com/headway-rl/headway/cmd/lab/world/overlay"
)

// guest is the package of the world's program, from the root of the repository.
const guest = "./cmd/lab/world/guest"

// experiments is GOEXPERIMENT of the build.
const experiments = ""

// Options say how the world's program is built.
type Options struct {
	// Root is the root of the checkout.
	Root string
	// Race builds it with the race detector.
	Race bool
	// Doctored is the bug that is put in; nil for none.
	Doctored *doctored.Build
}

// Build builds the world's program of a checkout, and opens it. Go's cache keeps what has not changed.
func Build(ctx context.Context, o Options) (*Program, error) {
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	dir, err := o.folder(root)
	if err != nil {
		return nil, err
	}
	lock, err := locked(dir + ".lock")
	if err != nil {
		return nil, fmt.Errorf("the folder of the world's program: %w", err)
	}
	defer lock.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	goroot, err := output(ctx, root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var more map[string]string
	if o.Doctored != nil {
		defer os.RemoveAll(dir) // there are many of them, and each is 70 MiB
		copies := filepath.Join(dir, "doctored")
		if err := errors.Join(os.RemoveAll(copies), os.Mkdir(copies, 0o755)); err != nil {
			return nil, err
		}
		patched, err := o.Doctored.Overlay(root, copies)
		if err != nil {
			return nil, err
		}
		more = patched.Replace
	}
	replaced, err := overlay.Write(dir, goroot, more)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "world")
	if err := o.compile(ctx, root, replaced, path); err != nil {
		return nil, err
	}
	return Open(path, o.Race)
}

// compile calls Go's compiler. The program holds neither the state of the checkout nor its path: one source makes one
// program.
func (o Options) compile(ctx context.Context, root, replaced, path string) error {
	arguments := []string{"build", "-tags", "faketime", "-overlay", replaced, "-trimpath", "-buildvcs=false", "-ldflags=-w", "-gcflags=all=-dwarf=false", "-o", path}
	cgo := "0"
	if o.Race {
		arguments, cgo = append(arguments, "-race"), "1"
	}
	cmd := exec.CommandContext(ctx, "go", append(arguments, guest)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS=", "GOEXPERIMENT="+experiments, "CGO_ENABLED="+cgo)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the world's program does not build: %w\n%s", cause(ctx, err), bytes.TrimSpace(said))
	}
	return nil
}

// folder is the folder of a build in the user's cache: one for each checkout, and for each way to build it.
func (o Options) folder(root string) (string, error) {
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	key := root
	if o.Race {
		key += "\x00race"
	}
	if o.Doctored != nil {
		key += "\x00" + o.Doctored.Name + "\x00" + o.Doctored.Patch
	}
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(cache, hex.EncodeToString(sum[:6])), nil
}

// Cache is the folder of worlds in the user's cache.
func Cache() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "headway", "world")
	return dir, os.MkdirAll(dir, 0o755)
}

// Root is the root of the checkout that holds the working directory.
func Root(ctx context.Context) (string, error) {
	file, err := output(ctx, ".", "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	root := filepath.Dir(file)
	if _, err := os.Stat(filepath.Join(root, guest)); file == "" || err != nil {
		return "", errors.New("the world's program is built from a checkout of Headway, and the working directory is in none")
	}
	return root, nil
}

// output is what a program prints, without the end of the line.
func output(ctx context.Context, dir, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), cause(ctx, err), bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// cause is the end of the context where that is why a program ended.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
