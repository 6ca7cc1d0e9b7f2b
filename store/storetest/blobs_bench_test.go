package storetest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/storetest"
)

// blobBytes is about the rows of routing of a rollout of 32k tokens: 94 layers, 8 experts, a byte each.
const blobBytes = 25_000_000

// BenchmarkPutBlob puts a blob and writes a file of the same bytes and checksum, by turns. It reports the speed of the file
// over that of the blob's as "slowdown". Both wait for the disk in "always".
func BenchmarkPutBlob(b *testing.B) {
	for _, always := range []bool{false, true} {
		for name, open := range map[string]func(b *testing.B, dir string, always bool) port.Store{"file": benchFile, "jetstream": benchJetStream} {
			b.Run(fmt.Sprintf("%s/%s", name, map[bool]string{false: "kernel", true: "always"}[always]), func(b *testing.B) {
				dir := b.TempDir()
				s := open(b, dir, always)
				benchPut(b, s, filepath.Join(dir, "plain"), always)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func benchFile(b *testing.B, dir string, always bool) port.Store {
	s, err := file.Create(filepath.Join(dir, "run"), file.Options{Always: always})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func benchJetStream(b *testing.B, dir string, always bool) port.Store {
	s, err := jetstream.Open(context.Background(), jetstream.Options{Dir: filepath.Join(dir, "nats"), Run: "bench", Always: always})
	if err == nil {
		_, _, err = s.Acquire(context.Background(), "bench")
	}
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func benchPut(b *testing.B, s port.Store, path string, always bool) {
	blobs, _ := port.As[port.Blobs](s)
	data := storetest.Blob(port.RolloutID{}, 0, blobBytes)
	var plain time.Duration
	b.SetBytes(blobBytes)
	b.ReportAllocs()
	for g := loop.GroupID(1); b.Loop(); g++ {
		b.StopTimer()
		began := time.Now()
		if err := writePlain(path, data, always); err != nil {
			b.Fatal(err)
		}
		plain += time.Since(began)
		b.StartTimer()
		if err := blobs.PutBlob(port.RolloutID{Group: g, Attempt: 1}, 0, data); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := errors.Join(s.Forget(g), os.Remove(path)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(plain), "slowdown")
}

// writePlain writes bytes and their checksum to a new file.
func writePlain(path string, data []byte, always bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	_, err = f.Write(data)
	_, err2 := f.Write(sum)
	if err = errors.Join(err, err2); err == nil && always {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
