package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/loop"
)

// fetch reads a reply to its end, as fast as it comes, and returns its size.
func fetch(b *testing.B, req *http.Request, buffer []byte) (n int64) {
	b.Helper()
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		b.Fatalf("status %d", reply.StatusCode)
	}
	for {
		k, err := reply.Body.Read(buffer)
		n += int64(k)
		if err == io.EOF {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// processor is the processor time of this process, client and server.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLease leases a batch of 64 MB over loopback, by turns with a plain server that sends
// the same bytes from memory; ratio is of the two medians.
func BenchmarkLease(b *testing.B) {
	s := newSchool(b, api.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.trainer.Train(ctx, lesson(5, 0, 128, 4900))
	}()
	defer func() { cancel(); <-done }()
	buffer := make([]byte, 256<<10)
	lease := func() int64 {
		req, err := http.NewRequest(http.MethodPost, s.url+"batches/lease", strings.NewReader(`{"trainer":"a","wait_s":60}`))
		if err != nil {
			b.Fatal(err)
		}
		return fetch(b, req, buffer)
	}
	size := lease()
	content := bytes.Repeat([]byte("headway "), int(size/8)+1)[:size] // untouched memory would be one page
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "batch", time.Time{}, bytes.NewReader(content))
	}))
	defer plain.Close()
	serve := func() int64 {
		req, err := http.NewRequest(http.MethodGet, plain.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		return fetch(b, req, buffer)
	}
	b.SetBytes(size)
	var walls, times [2][]float64
	for b.Loop() {
		for i, get := range []func() int64{lease, serve} {
			cpu, wall := processor(b), time.Now()
			if n := get(); n != size {
				b.Fatalf("%d of %d bytes", n, size)
			}
			walls[i], times[i] = append(walls[i], time.Since(wall).Seconds()), append(times[i], (processor(b)-cpu).Seconds())
		}
	}
	b.ReportMetric(float64(size)/median(walls[0])/1e6, "lease-MB/s")
	b.ReportMetric(float64(size)/median(walls[1])/1e6, "plain-MB/s")
	b.ReportMetric(median(walls[1])/median(walls[0]), "ratio")
	b.ReportMetric(median(times[1])/median(times[0]), "cpu-ratio")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkPublish publishes a model of 1 MB over loopback and reports the time from the
// request to the commit, which is when Train returns.
func BenchmarkPublish(b *testing.B) {
	s := newSchoolOf(b, api.Options{}, 1<<18)
	content := string(safetensors(make([]byte, 1<<20)))
	buffer := make([]byte, 256<<10)
	var took []float64
	version := loop.Version(0)
	for b.Loop() {
		done := make(chan error, 1)
		lease := loop.LeaseID(version + 1)
		go func() {
			_, err := s.trainer.Train(b.Context(), lesson(lease, version, 1, 100))
			done <- err
		}()
		req, err := http.NewRequest(http.MethodPost, s.url+"batches/lease", strings.NewReader(`{"trainer":"a","wait_s":60}`))
		if err != nil {
			b.Fatal(err)
		}
		fetch(b, req, buffer)
		manifest := fmt.Sprintf(`{"trainer":"a","lease":%d,"attempt":1,"version":%d,"files":[{"name":"model.safetensors"}]}`, lease, version+1)
		kind, body := form(b, manifest, "model.safetensors", content)
		began := time.Now()
		if status, text, _ := s.call(http.MethodPost, "weights", kind, body); status != 200 {
			b.Fatalf("%d %s", status, text)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began).Seconds()*1e3)
		version++
		if version%20 == 0 {
			s.must(s.store.Prune(version - 5))
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
	b.ReportMetric(took[len(took)*99/100], "p99-ms")
}
