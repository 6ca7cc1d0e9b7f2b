package transfer_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/store/transfer"
)

// benchBytes is the size of the version that travels: a gigabyte, or 64 MiB with -short.
func benchBytes() int {
	if testing.Short() {
		return 64 << 20
	}
	return 1 << 30
}

// scratch is a directory in memory where the system has one, so that what is measured is
// the way and not a disk.
func scratch(b *testing.B) string {
	root := "/dev/shm"
	if _, err := os.Stat(root); err != nil {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(root, "headway-")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// version writes a version of n bytes and serves it, at a rate if limit is not 0.
func version(b *testing.B, dir string, n int, limit float64) (url string, parts []transfer.Part) {
	b.Helper()
	dir = filepath.Join(dir, "origin")
	parts = []transfer.Part{{Name: "model-1.safetensors", Size: int64(n / 2)}, {Name: "model-2.safetensors", Size: int64(n - n/2)}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for _, p := range parts {
		f, err := os.Create(filepath.Join(dir, p.Name))
		if err != nil {
			b.Fatal(err)
		}
		for left := p.Size; left > 0; left -= min(left, int64(len(block))) {
			if _, err := f.Write(block[:min(left, int64(len(block)))]); err != nil {
				b.Fatal(err)
			}
		}
		f.Close()
	}
	c, err := transfer.OpenCopy(7, "", manifestOf(b, dir, parts), parts, dir)
	if err != nil {
		b.Fatal(err)
	}
	source := &transfer.Source{Limit: transfer.NewBucket(limit)}
	source.Add(c)
	server := httptest.NewServer(source.Handler("/t"))
	b.Cleanup(server.Close)
	return server.URL + "/t", parts
}

// fan brings the version to n receivers in a chain and returns how long it took.
func fan(b *testing.B, dir, url string, n int, limit float64) time.Duration {
	b.Helper()
	stores, urls := make([]*transfer.Store, n), make([]string, n)
	for i := range stores {
		stores[i] = &transfer.Store{Dir: filepath.Join(dir, fmt.Sprintf("n%d", i)), Source: &transfer.Source{Limit: transfer.NewBucket(limit)}, Limit: transfer.NewBucket(limit)}
		server := httptest.NewServer(stores[i].Source.Handler("/t"))
		defer server.Close()
		urls[i] = server.URL + "/t"
	}
	began := time.Now()
	var wg sync.WaitGroup
	for i, store := range stores {
		chain := from(b, 7, "", url)
		if i > 0 {
			chain = from(b, 7, "", urls[i-1], url)
		}
		wg.Go(func() {
			if _, err := store.Fetch(context.Background(), chain); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for _, store := range stores {
		store.Source.Remove(7)
		os.RemoveAll(store.Dir)
	}
	return took
}

// raw sends n bytes over each of as many connections as there are receivers, from memory
// into files, and returns how long it took: what the machine can do without headway.
func raw(b *testing.B, dir string, receivers, n int) time.Duration {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	block := make([]byte, transfer.ChunkBytes)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for left := n; left > 0; left -= min(left, len(block)) {
					if _, err := c.Write(block[:min(left, len(block))]); err != nil {
						return
					}
				}
			}()
		}
	}()
	began := time.Now()
	var wg sync.WaitGroup
	for i := range receivers {
		wg.Go(func() {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			path := filepath.Join(dir, fmt.Sprintf("raw%d", i))
			f, err := os.Create(path)
			if err != nil {
				b.Error(err)
				return
			}
			defer os.Remove(path)
			defer f.Close()
			buffer := make([]byte, transfer.ChunkBytes)
			if got, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{c}, buffer); err != nil || got != int64(n) {
				b.Errorf("%d bytes, %v", got, err)
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkLoopback compares a chain with as many raw streams at once, alternating:
// "of-raw" is the median of the ratios of their rates.
func BenchmarkLoopback(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("receivers=%d", n), func(b *testing.B) {
			dir, size := scratch(b), benchBytes()
			url, _ := version(b, dir, size, 0)
			var ratios []float64
			for b.Loop() {
				runtime.GC()
				r := raw(b, dir, n, size)
				f := fan(b, dir, url, n, 0)
				ratios = append(ratios, r.Seconds()/f.Seconds())
				b.SetBytes(int64(n * size))
				b.ReportMetric(float64(n*size)/f.Seconds()/1e6, "MB/s-chain")
				b.ReportMetric(float64(n*size)/r.Seconds()/1e6, "MB/s-raw")
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-raw")
		})
	}
}

// BenchmarkLimited brings a version to receivers over links of 200 and of 100 MB/s a node in
// each direction: "of-one" is the time relative to a single receiver's in the same run. All
// nodes share this machine, which has to move what all their links carry together.
func BenchmarkLimited(b *testing.B) {
	for _, rate := range []float64{200e6, 100e6} {
		var one float64
		for _, n := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("rate=%.0fMB/receivers=%d", rate/1e6, n), func(b *testing.B) {
				dir := scratch(b)
				url, _ := version(b, dir, benchBytes(), rate)
				var times []float64
				for b.Loop() {
					times = append(times, fan(b, dir, url, n, rate).Seconds())
				}
				slices.Sort(times)
				median := times[len(times)/2]
				if n == 1 {
					one = median
				}
				b.ReportMetric(median, "s")
				b.ReportMetric(median/one, "of-one")
			})
		}
	}
}
