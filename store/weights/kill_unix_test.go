//go:build unix

package weights

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// killedEnv makes the test's binary the process that is killed, on the directory it names.
const killedEnv = "HEADWAY_TEST_WEIGHTS_KILLED"

// kills is how often the process is killed.
const kills = 40

// TestKilledPublisher is the process that is killed: it publishes in every way there is,
// one version after the other, and says after each operation of the disk that it goes on.
func TestKilledPublisher(t *testing.T) {
	dir := os.Getenv(killedEnv)
	if dir == "" {
		t.Skip("runs as the child of TestKill")
	}
	s, err := open(dir, Options{}, &telling{})
	if err != nil {
		t.Fatal(err)
	}
	v := s.Newest() + 1
	for ; ; v++ {
		if err := killedStep(t, s, v); err != nil {
			t.Fatal(err)
		}
		if err := s.Prune(v - 3); err != nil {
			t.Fatal(err)
		}
	}
}

// killedStep publishes one version.
func killedStep(t *testing.T, s *Store, v loop.Version) error {
	p := publication(0, 1) // of any number: the bits are those of version 0
	p.Version = v
	p.Model[0].Data[int(v)%len(p.Model[0].Data)]++
	if v%3 != 2 {
		if err := s.Publish(t.Context(), p); err != nil || v == 0 {
			return err
		}
		if _, err := s.Diff(t.Context(), v-1, v, Overwrite); err != nil {
			return err
		}
		_, err := s.Cast(t.Context(), v, Cast{DType: F8E4M3, Scale: ScaleBlock})
		return err
	}
	base, err := s.Manifest(v - 1)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(s.directory(v-1) + "/" + ModelName)
	if err != nil {
		return err
	}
	from, to := memory{ModelName: content}, memory{ModelName: append([]byte(nil), content...)}
	to[ModelName][len(content)-4] ^= 1
	reader, writer := io.Pipe()
	go func() {
		_, err := makeDelta(context.Background(), writer, from, to, to.files(), Delta{Version: v, BaseVersion: base.Version, Encoding: XOR})
		writer.CloseWithError(err)
	}()
	return publishWith(s, Description{Version: v, Lease: 1, Kind: KindDelta, BaseVersion: v - 1, Encoding: XOR}, func(d *Draft) error {
		return d.Add(t.Context(), DeltaName, reader)
	})
}

// telling is a disk that says a line before each operation.
type telling struct{ system }

func (d *telling) tell() { fmt.Println("op") }

func (d *telling) Mkdir(dir string) error       { d.tell(); return d.system.Mkdir(dir) }
func (d *telling) Rename(from, to string) error { d.tell(); return d.system.Rename(from, to) }
func (d *telling) RemoveAll(path string) error  { d.tell(); return d.system.RemoveAll(path) }
func (d *telling) Create(path string) (output, error) {
	d.tell()
	f, err := d.system.Create(path)
	return tellingFile{f, d}, err
}

type tellingFile struct {
	output
	d *telling
}

func (f tellingFile) Write(p []byte) (int, error) { f.d.tell(); return f.output.Write(p) }

// A publisher is killed with kill -9 at random operations; whoever reads the directory
// afterwards, and the publisher that comes after it, finds every version whole.
func TestKill(t *testing.T) {
	dir, rng, survived := scratch(t), rand.New(rand.NewPCG(11, 12)), loop.NoVersion
	for range kills {
		operations := 1 + rng.IntN(120)
		child := exec.Command(os.Args[0], "-test.run=^TestKilledPublisher$")
		child.Env = append(os.Environ(), killedEnv+"="+dir)
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		// One byte after the other, so that the child is about where it says it is.
		seen := 0
		for b := make([]byte, 1); seen < operations; {
			if _, err := out.Read(b); err != nil {
				t.Fatalf("the child ended by itself after %d operations: %v", seen, err)
			}
			if b[0] == '\n' {
				seen++
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		if err := child.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		reader := openTest(t, dir, Options{ReadOnly: true})
		verifyAll(t, reader)
		newest := reader.Newest()
		if newest < survived {
			t.Fatalf("version %d is gone, %d is the newest", survived, newest)
		}
		survived = newest
	}
	t.Logf("%d kills, up to version %d", kills, survived)
	openTest(t, dir, Options{})
	onlyVersionDirs(t, dir)
}
