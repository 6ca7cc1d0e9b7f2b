package machine

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// The least limit counts, wherever it stands: at the machine, at the group of the process, or above it.
func TestMemoryUnder(t *testing.T) {
	const meminfo = "MemTotal:       16777216 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing said":  {nil, 0},
		"the machine":   {map[string]string{"proc/meminfo": meminfo}, 16 << 30},
		"no limit":      {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 16 << 30},
		"own group":     {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n"}, 1 << 30},
		"above it":      {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2147483648\n"}, 2 << 30},
		"a container":   {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/x/y\n", "sys/fs/cgroup/memory.max": "2147483648\n"}, 2 << 30},
		"first version": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/c\n4:hugetlb,memory:/c\n0::/\n", "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "3221225472\n"}, 3 << 30},
		"its no limit":  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/c\n", "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "9223372036854771712\n"}, 16 << 30},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryUnder(root); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
	if got := leastOf(8<<30, 1<<30); got != 1<<30 {
		t.Errorf("under GOMEMLIMIT: %d", got)
	}
	if got := leastOf(0, math.MaxInt64); got != memoryUnknown {
		t.Errorf("nothing known: %d", got)
	}
	if Memory() < 1<<20 || Descriptors() < 64 {
		t.Errorf("this machine: %d bytes, %d descriptors", Memory(), Descriptors())
	}
}
