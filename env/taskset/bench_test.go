package taskset

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// BenchmarkLoad reads a million lines of 300 bytes. heap_MB is what the set keeps in use, of 300 MB
// of file; sys_MB what the process has taken of the system by then.
func BenchmarkLoad(b *testing.B) {
	const lines = 1_000_000
	path := filepath.Join(b.TempDir(), "million.jsonl")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	padding := strings.Repeat("some words of a problem ", 8)
	for i := range lines {
		fmt.Fprintf(w, `{"id": "problem-%07d", "prompt": "%s%d", "reward_model": {"style": "rule", "ground_truth": "%d"}, "level": %d}`+"\n", i, padding, i, i*i, 1+i%5)
	}
	w.Flush()
	info, _ := f.Stat()
	f.Close()
	b.SetBytes(info.Size())
	b.ReportAllocs()
	b.ResetTimer()
	var s *Set
	for range b.N {
		if s, err = Load(Options{Paths: []string{path}, HeldOut: 0.01, Levels: 5, Map: Mapping{Answer: "reward_model.ground_truth"}}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	sys := m.Sys
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/1e6, "heap_MB")
	b.ReportMetric(float64(sys)/1e6, "sys_MB")
	runtime.KeepAlive(s)
}

// BenchmarkAt makes the task of a prompt.
func BenchmarkAt(b *testing.B) {
	path := filepath.Join(b.TempDir(), "set.jsonl")
	os.WriteFile(path, []byte(`{"id": "a", "prompt": "`+strings.Repeat("some words ", 20)+`", "answer": "4"}`), 0o600)
	s := loaded(b, Options{Paths: []string{path}})
	b.ReportAllocs()
	for b.Loop() {
		s.At(1, 0)
	}
}
